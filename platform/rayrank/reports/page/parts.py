"""What each part was worth: the ablation as a chart and a table."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.ablation_table import SIGNIFICANT, about_failed
from rayrank.reports.page.axes import around
from rayrank.reports.page.chart import Chart
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts, difference_html, mean_html
from rayrank.reports.page.rows import Interval, interval_chart

NAME, TITLE = "parts", "What each part was worth"


def section(facts: Facts, command: str) -> Section:
    """Return every row of the ablation against its reference."""
    if not facts["ablations"]:
        return missing(NAME, TITLE, "No ablation is on storage; to train the model without each of its parts:", command)
    blocks: list[str | Sequence[Chart]] = []
    for number, found in enumerate(facts["ablations"], 1):
        blocks += ablation_blocks(found, f"{NAME}-{number}", TITLE)
    return Section(NAME, TITLE, blocks)


def ablation_blocks(found: Facts, name: str, title: str) -> list[str | Sequence[Chart]]:
    """Return a table of rows that are compared with one of them, as text, a chart and a table."""
    split = found["splits"].value[-1]
    chart = Chart(name, _chart(found, split, title), _caption(found, split))
    return [paragraph(_about(found, split)), [chart], _table(found, split)]


def _about(found: Facts, split: str) -> str:
    metric, reference = found["metrics"].value[0], found["reference"].value
    seeds = max(row["num_seeds"].value for row in found["rows"])
    return (
        f"{escape(metric)} on {escape(split)}, each row against {escape(reference)} on the same queries; "
        f"{seeds} training{'s' if seeds > 1 else ''} per row; p values are Holm-corrected."
        f"{escape(about_failed(found.get('failed').value or {}))}"
    )


def _measured(found: Facts, split: str) -> list[tuple[Facts, Facts]]:
    """Return the rows that have the split, with their figures of the main metric."""
    metric = found["metrics"].value[0]
    return [(row, row["figures"][split][metric]["all"]) for row in found["rows"] if split in row["figures"]]


def _chart(found: Facts, split: str, title: str) -> str:
    rows, band = [], None
    for row, figure in _measured(found, split):
        interval, is_reference = figure["interval"].value, row["name"].value == found["reference"].value
        differs = is_reference or (figure["p_holm"].value or 0.0) < SIGNIFICANT
        if is_reference:
            band = (interval["low"], interval["high"])
        values = (interval["mean"], interval["low"], interval["high"])
        rows.append(
            Interval(row["name"].value, *values, f"{interval['mean']:.4f}", 0 if is_reference else 1, not differs)
        )
    scale = around(found["metrics"].value[0], [end for row in rows for end in (row.low, row.high)])
    return interval_chart(title, rows, scale, band)


def _caption(found: Facts, split: str) -> str:
    level = found["procedure"]["level"].value
    return (
        f"Mean and {level:.0%} interval on {split}; the band is that of {found['reference'].value}. Open points may "
        f"not differ from it (p of at least {SIGNIFICANT})."
    )


def _table(found: Facts, split: str) -> str:
    header = ["row", "mean [95 % CI]", "against the reference [95 % CI]", "p", "device seconds", "pairs/s"]
    lines = []
    for row, figure in _measured(found, split):
        compared = figure["comparison"]
        tested = [difference_html(compared), figure["p_holm"].html("p")] if compared else ["", ""]
        costs = [row["device_seconds"].html(",.0f"), row["pairs_per_second"].html(",.0f")]
        lines.append([escape(row["name"].value), mean_html(figure["interval"]), *tested, *costs])
    return table(header, lines)
