"""What sweeps found: the dev metric of every trial by each setting, and the best trials."""

from html import escape

from rayrank.reports.page.axes import Scale, around, from_zero, percent
from rayrank.reports.page.chart import Chart, Plot
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts
from rayrank.reports.page.rows import Bar, bar_chart

NAME, TITLE = "sweeps", "Sweeps"
SHOWN_TRIALS = 10
THRESHOLD = "noise.threshold"
WIDE = 30
"""Settings whose largest value is this many times the smallest are drawn on a log scale."""


def section(facts: Facts, command: str) -> Section:
    """Return a chart for every swept number, and a table of the best trials."""
    if not facts["sweeps"]:
        return missing(NAME, TITLE, "No sweep over this dataset is on storage; to search for better settings:", command)
    blocks: list[str | list[Chart]] = []
    for number, sweep in enumerate(facts["sweeps"], 1):
        swept = ", ".join(sweep["settings"].value)
        blocks.append(paragraph(f"{len(sweep['trials'])} finished trials of {escape(swept)}; the best first."))
        charts = [_importance(sweep["importance"], sweep["metric"].value, number)] if sweep["importance"] else []
        if charts := charts + [chart for name in sweep["settings"].value if (chart := _chart(sweep, name, number))]:
            blocks.append(charts)
        if facts["noise"] and THRESHOLD in sweep["settings"].value:
            blocks.append(paragraph('What each threshold removes is in the section <a href="#noise">on noise</a>.'))
        blocks.append(_table(sweep))
    return Section(NAME, TITLE, blocks)


def _importance(shares: Facts, metric: str, number: int) -> Chart:
    """Return which settings decided how good a trial was, the most important first."""
    rows = [Bar(name, [(share.value, 0)], f"{share.value:.0%}") for name, share in shares.items()]
    scale = from_zero("share of the variance", [share.value for share in shares], form=percent)
    caption = f"Importance: share of the variance in dev {metric} that each setting explains (fANOVA)."
    return Chart(f"sweep-{number}-importance", bar_chart("Importance of the settings", rows, scale), caption)


def _chart(sweep: Facts, name: str, number: int) -> Chart | None:
    """Return the trials by a setting; None if it is not a number, or the same in every trial."""
    points = [(trial["settings"][name], trial["dev"]) for trial in sweep["trials"].value]
    values = {value for value, _ in points}
    if len(values) < 2 or any(isinstance(value, (str, bool, list)) or value is None for value in values):
        return None
    is_log = min(values) > 0 and max(values) / min(values) >= WIDE
    x = (
        Scale(f"{name} (log scale)", 0.9 * min(values), 1.1 * max(values), is_log=True)
        if is_log
        else around(name, values)
    )
    y = around(f"dev {sweep['metric'].value}", [dev for _, dev in points])
    svg = Plot(f"Trials by {name}", x, y).dots(points, 0).svg()
    return Chart(f"sweep-{number}-{name.replace('.', '-')}", svg, f"Every finished trial by {name}.")


def _table(sweep: Facts) -> str:
    names = sweep["settings"].value
    lines = [
        [trial["trial"].html(), trial["dev"].html(".4f"), *(trial["settings"][name].html() for name in names)]
        for trial in list(sweep["trials"])[:SHOWN_TRIALS]
    ]
    return table(["trial", f"dev {sweep['metric'].value}", *names], lines)
