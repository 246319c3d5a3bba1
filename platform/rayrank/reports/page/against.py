"""The comparison of two reports as one page: figures side by side, wins and losses, settings, and cost."""

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from rayrank.reports.page.axes import Scale, from_zero
from rayrank.reports.page.chart import Chart
from rayrank.reports.page.differences import difference_curve
from rayrank.reports.page.document import Section, page, paragraph, standalone, table
from rayrank.reports.page.facts import Facts, difference_html, mean_html
from rayrank.reports.page.rows import Bar, Interval, bar_chart, interval_chart
from rayrank.reports.table import p_phrase

OUTCOMES = (("wins", "better", 0), ("ties", "equal", 6), ("losses", "worse", 1))
"""What each query counts as, with the colours of the bars."""


def files(facts: Mapping[str, Any], name: str, command: str) -> dict[str, bytes]:
    """Return the page as NAME.html and its charts by their names; `command` makes the page again."""
    found = Facts(facts)
    ours, theirs = (each["label"].value for each in found["sides"])
    sections = [_summary(found, command), *_outcomes(found), _settings(found), _cost(found)]
    title = f"rayrank: {ours} against {theirs}"
    charts = {f"{name}-{chart.name}.svg": standalone(chart) for each in sections for chart in each.charts}
    return {f"{name}.html": page(title, f"made {escape(facts['created'])}", sections, facts).encode(), **charts}


def _summary(facts: Facts, command: str) -> Section:
    runs, metric = list(facts["runs"]), facts["metric"].value
    blocks: list[str | Sequence[Chart]] = []
    if runs and metric in runs[0]["metrics"]:
        blocks.append(_big(facts, runs[0], metric))
    if facts["unpaired"]:
        blocks.append(paragraph(f"<b>{escape(facts['unpaired'].value)}</b>"))
    blocks.append(_sides(facts))
    if runs:
        blocks += [[Chart("runs", _chart(facts, metric), _caption(facts, metric))], _table(facts)]
    else:
        blocks.append(paragraph("The two have no evaluated run in common."))
    again = f"<h3>The command that makes this page again</h3><pre>{escape(command)}</pre>"
    return Section("summary", "Summary", [*blocks, again])


def _labels(facts: Facts) -> list[str]:
    return [escape(each["label"].value) for each in facts["sides"]]


def _big(facts: Facts, run: Facts, metric: str) -> str:
    """Return the figures that a reader should remember: those of the runs that dev chose."""
    found, labels = run["metrics"][metric], _labels(facts)
    boxes = [
        (found["mean"]["mean"].html(".3f"), f"{metric} of {escape(run['title'].value)}, {labels[0]}"),
        (found["other"]["mean"].html(".3f"), f"{metric} of {escape(run['other'].value)}, {labels[1]}"),
    ]
    if found["paired"]:
        each = found["paired"]["comparison"]
        p_value = p_phrase(each["p_value"].value).replace(" ", "\u00a0")
        interval = f"[{each['low'].text('+.3f')}, {each['high'].text('+.3f')}]"
        boxes.append((each["difference"].html("+.3f"), f"difference, 95 % interval {interval}, {p_value}"))
    return f'<div class="big">{"".join(f"<div><b>{value}</b><span>{text}</span></div>" for value, text in boxes)}</div>'


def _sides(facts: Facts) -> str:
    """Return what the two reports are about, side by side."""
    sides = list(facts["sides"])
    lines = [
        [text, *(each[name].html() for each in sides)]
        for name, text in (("dataset", "dataset"), ("split", "measured split"), ("encoder", "encoder"),
                           ("chosen", "run that dev chose"), ("created", "report made"))
    ]  # fmt: skip
    lines += [[name, *(each["corpus"][f"num_{name}"].html(",") for each in sides)] for name in ("passages", "queries")]
    lines.append(["judgments", *(each["corpus"]["num_judgments"].html(",") for each in sides)])
    lines.append(["revision", *(f"<code>{escape(each['revision'].value[:12])}</code>" for each in sides)])
    return table(["", *(each["label"].value for each in sides)], lines)


def _chart(facts: Facts, metric: str) -> str:
    rows, labels = [], [each["label"].value for each in facts["sides"]]
    for run in facts["runs"]:
        if metric not in run["metrics"]:
            continue
        for number, (side, title) in enumerate((("mean", "title"), ("other", "other"))):
            found = run["metrics"][metric][side].value
            name = f"{run[title].value}, {labels[number]}"
            note = f"{found['mean']:.4f}"
            rows.append(Interval(name, found["mean"], found["low"], found["high"], note, number))
    low, high = min(row.low for row in rows), from_zero("", [row.high for row in rows]).high
    return interval_chart(metric, rows, Scale(metric, 0.8 * low, high))


def _caption(facts: Facts, metric: str) -> str:
    ours, theirs = (each["label"].value for each in facts["sides"])
    return f"{metric}, mean and 95 % interval: {ours} (round) and {theirs} (square), the runs that dev chose first."


def _table(facts: Facts) -> str:
    ours, theirs = (each["label"].value for each in facts["sides"])
    header = ["metric", "run", f"{ours} [95 % CI]", f"{theirs} [95 % CI]", "difference [95 % CI]", "p"]
    header.append("won / tied / lost")
    lines = []
    for metric in dict.fromkeys(name for run in facts["runs"] for name in run["metrics"].value):
        for run in facts["runs"]:
            if metric not in run["metrics"]:
                continue
            found = run["metrics"][metric]
            means = [mean_html(found["mean"]), mean_html(found["other"])]
            lines.append([escape(metric), escape(_name(run)), *means, *_tested(found["paired"])])
    return table(header, lines, num_names=2)


def _tested(paired: Facts) -> list[str]:
    if not paired:
        return ["–"] * 3
    tested = [difference_html(paired["comparison"]), paired["comparison"]["p_value"].html("p")]
    return [*tested, " / ".join(paired[name].html(",") for name, _, _ in OUTCOMES)]


def _name(run: Facts) -> str:
    """Return a run's title, and the other side's where it is another run."""
    return str(run["title"].value if run["title"].value == run["other"].value else
               f"{run['title'].value} against {run['other'].value}")  # fmt: skip


def _outcomes(facts: Facts) -> list[Section]:
    """Return wins, ties and losses of every run; nothing where the two cannot be paired."""
    metric = facts["metric"].value
    paired = [run for run in facts["runs"] if metric in run["metrics"] and run["metrics"][metric]["paired"]]
    if not paired:
        return []
    ours, theirs = (each["label"].value for each in facts["sides"])
    rows, count = [], paired[0]["metrics"][metric]["paired"]["num_queries"].value
    for run in paired:
        found = run["metrics"][metric]["paired"]
        parts = [(found[name].value, series) for name, _, series in OUTCOMES]
        rows.append(Bar(_name(run), parts))
    names = [(text, series) for _, text, series in OUTCOMES]
    bars = bar_chart("Wins, ties and losses", rows, Scale("queries", 0, count), names)
    charts = [Chart("outcomes", bars, f"Queries on which {ours} is better than, equal to and worse than {theirs}.")]
    if differences := paired[0]["differences"]:
        caption = f"Every query by {metric} of {ours} minus {theirs}, {_name(paired[0])}, the largest gain first."
        charts.append(Chart("differences", difference_curve(differences, count), caption))
    return [Section("outcomes", "Wins, ties and losses", [charts])]


def _settings(facts: Facts) -> Section:
    name, title = "settings", "Settings that differ"
    if not facts["settings"]:
        return Section(name, title, [paragraph("All settings are the same.")])
    lines = [
        [f"<code>{escape(each['key'].value)}</code>", *(_value(each[side]) for side in ("value", "other"))]
        for each in facts["settings"]
    ]
    header = ["setting", *(each["label"].value for each in facts["sides"])]
    found = table(header, lines)
    for cell in ("td", "th"):
        found = found.replace(f"<{cell}>", f'<{cell} class="long">')
    return Section(name, title, [found])


def _value(value: Facts) -> str:
    if value.value is None or value.value == "":
        return "–"
    if isinstance(value.value, (bool, list)):
        return escape(json.dumps(value.value, ensure_ascii=False))
    return value.html()


def _cost(facts: Facts) -> Section:
    found, sides = list(facts["cost"]), list(facts["sides"])
    labels = [side["label"].value for side in sides]
    rows = [
        Bar(f"{each['node'].value.removeprefix('run:')}, {label}", [(value, number)], f"{value:,.1f}")
        for each in found
        for number, (label, value) in enumerate(zip(labels, each["values"].value, strict=True))
        if value is not None and not each["is_same"].value
    ]
    blocks: list[str | Sequence[Chart]] = []
    if rows:
        scale = from_zero("seconds", [part for row in rows for part, _ in row.parts])
        names = [(label, number) for number, label in enumerate(labels)]
        chart = bar_chart("Seconds by stage", rows, scale, names)
        blocks.append([Chart("cost", chart, "Seconds of each stage and run that the two do not share.")])
    else:
        blocks.append(paragraph("The two share all artifacts, so they cost the same."))
    header = ["stage or run", *(f"{label}, s" for label in labels), *(f"{label}, device s" for label in labels), ""]
    lines = [
        [escape(each["node"].value.removeprefix("run:")), *(value.html(",.1f") for value in each["values"]),
         *(value.html(",.1f") for value in each["devices"]), "same artifact" if each["is_same"].value else ""]
        for each in found
    ]  # fmt: skip
    total = ["<b>all</b>", *(side["seconds"].html(",.1f") for side in sides)]
    lines.append([*total, *(side["device_seconds"].html(",.1f") for side in sides), ""])
    return Section("cost", "Cost", [*blocks, table(header, lines)])
