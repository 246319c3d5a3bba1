"""How good the runs are after training on few and on many judged queries."""

from html import escape

from rayrank.reports.learning_curve import CHOSEN
from rayrank.reports.page.axes import Scale, around, plain
from rayrank.reports.page.chart import Chart, Plot
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts, difference_html, mean_html

NAME, TITLE = "learning-curve", "How many judged queries are enough?"


def section(facts: Facts, command: str) -> Section:
    """Return the learning curve as a chart and a table."""
    curve = facts["learning_curve"]
    if not curve:
        sentence = "No learning curve of this model is on storage; to train on fewer judged queries:"
        return missing(NAME, TITLE, sentence, command)
    metric = curve["points"][0]["table"]["metrics"][0].value
    seeds = max(row["num_seeds"].value for point in curve["points"] for row in point["table"]["rows"])
    repeated = f", mean of {seeds} trainings with their own queries" if seeds > 1 else ""
    caption = (
        f"{metric} on the {curve['split'].value} split by the number of judged training queries{repeated}. The points "
        f"of the run that dev chose are what you would serve."
    )
    chart = Chart(NAME, _chart(curve, metric), caption)
    return Section(NAME, TITLE, [paragraph(_about(curve, metric)), [chart], _table(curve, metric)])


def _figure(curve: Facts, row: Facts, metric: str) -> Facts:
    return row["figures"][curve["split"].value][metric]["all"]


def _about(curve: Facts, metric: str) -> str:
    """Return from how many queries on the chosen run is better than the first stage."""
    level = curve["points"][0]["table"]["procedure"]["level"].value
    better = []
    for point in curve["points"]:
        found = _figure(curve, point["table"]["rows"][-1], metric)["comparison"]
        better.append(bool(found) and found["difference"].value > 0 and found["p_value"].value < 1 - level)
    counts = [point["num_queries"] for point in curve["points"]]
    enough = next((place for place in range(len(better)) if all(better[place:])), None)
    if enough is None:
        return (
            f"With {counts[-1].html(',')} judged queries the chosen run is not significantly better than the first "
            f"stage: more judgments, or a larger encoder, may help."
        )
    count = counts[enough].html(",")
    return f"From {count} judged queries on, the chosen run is significantly better than the first stage."


def _chart(curve: Facts, metric: str) -> str:
    points = list(curve["points"])
    counts = [point["num_queries"].value for point in points]
    names = [row["name"].value for row in points[0]["table"]["rows"]]
    lines = {
        name: [
            (point["num_queries"].value, _figure(curve, row, metric)["interval"]["mean"].value)
            for point in points
            for row in point["table"]["rows"]
            if row["name"].value == name
        ]
        for name in names
    }
    is_wide = max(counts) >= 4 * min(counts)
    x = (
        Scale("training queries (log scale)", 0.9 * min(counts), 1.1 * max(counts), True, plain, _marks(counts))
        if is_wide
        else around("training queries", counts)
    )
    y = around(metric, [value for line in lines.values() for _, value in line])
    plot = Plot(TITLE, x, y, [(name, number) for number, name in enumerate(names)])
    for number, line in enumerate(lines.values()):
        plot.line(line, number % 6, with_markers=True)
    return plot.svg()


def _marks(counts: list[int]) -> tuple[float, ...]:
    """Return the counts as ticks, without those whose labels would touch the next one's."""
    kept: list[float] = []
    for count in sorted(counts, reverse=True):
        if not kept or kept[-1] >= 1.5 * count:
            kept.append(count)
    return tuple(reversed(kept))


def _table(curve: Facts, metric: str) -> str:
    level = curve["points"][0]["table"]["procedure"]["level"].value
    header = ["training queries", "run", f"{metric} [{level:.0%} CI]", f"against the first stage [{level:.0%} CI]", "p"]
    lines = []
    for point in curve["points"]:
        chosen = ", ".join(dict.fromkeys(point["chosen"].value))
        for row in point["table"]["rows"]:
            found = _figure(curve, row, metric)
            name = f"{CHOSEN}: {chosen}" if row["name"].value == CHOSEN else row["name"].value
            compared = found["comparison"]
            tested = [difference_html(compared), compared["p_value"].html("p")] if compared else ["", ""]
            lines.append([point["num_queries"].html(","), escape(name), mean_html(found["interval"]), *tested])
    return table(header, lines, num_names=2)
