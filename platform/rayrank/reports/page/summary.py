"""The first section: what was built from what, how good every run is, and how to make it again."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.page.axes import Scale, from_zero
from rayrank.reports.page.chart import Chart
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts, difference_html, mean_html
from rayrank.reports.page.rows import Interval, interval_chart
from rayrank.reports.table import p_phrase

NAME, TITLE = "summary", "Summary"


def section(facts: Facts, commands: Sequence[str]) -> Section:
    """Return the runs in the order of the pipeline, with intervals and p values; `commands` make them again."""
    if not facts["evaluations"]:
        return missing(NAME, TITLE, "No run has been evaluated yet. To train and evaluate all of them:", commands[0])
    runs, metric = list(facts["evaluations"]), facts["metric"].value
    charts = [Chart("runs", _chart(runs, metric), _caption(facts, runs[0], runs[-1]))]
    table_of_runs = _table(runs, facts["first_stage"].value)
    blocks: list[str | Sequence[Chart]] = [_big(facts, metric), _trained(facts), charts, table_of_runs]
    again = "\n".join(map(escape, commands))
    found = "".join(f"<li>{escape(line.value)}</li>" for line in facts["findings"])
    blocks += [f"<h3>What the stages found</h3><ul>{found}</ul>"] if found else []
    return Section(NAME, TITLE, [*blocks, f"<h3>Commands that reproduce this</h3><pre>{again}</pre>"])


def _big(facts: Facts, metric: str) -> str:
    """Return the figures that a reader should remember."""
    first = facts["evaluations"][0]["metrics"][metric]
    boxes = [(first["mean"].html(".3f"), f"{metric} of {facts['first_stage'].value}, the first stage")]
    shown = _chosen(facts)
    if shown is not None:
        found = shown["metrics"][metric]
        difference = found["comparison"]
        boxes.append((found["mean"].html(".3f"), f"{metric} of {shown['title'].value}{_why(facts)}"))
        change = f"[{difference['low'].text('+.3f')}, {difference['high'].text('+.3f')}], {_p(difference)}"
        boxes.append((difference["difference"].html("+.3f"), f"difference, 95 % interval {change}"))
    rows = "".join(f"<div><b>{value}</b><span>{escape(text)}</span></div>" for value, text in boxes)
    return f'<div class="big">{rows}</div>'


def _p(comparison: Facts) -> str:
    # No line is broken within it.
    return p_phrase(comparison["p_value"].value).replace(" ", "\u00a0")


def _why(facts: Facts) -> str:
    return ", the run that dev chose" if facts["choice"] else ""


def _chosen(facts: Facts) -> Facts | None:
    """Return the evaluation of the run that dev chose, or of the last one; None if that is the first stage."""
    others = [run for run in facts["evaluations"] if "comparison" in run["metrics"][facts["metric"].value]]
    if not facts["choice"]:
        return others[-1] if others else None
    return next((run for run in others if run["name"].value == facts["choice"]["name"].value), None)


def _trained(facts: Facts) -> str:
    corpus, train = facts["corpus"], facts["corpus"]["splits"].get("train")
    counts = ", ".join(f"{corpus[f'num_{name}'].html(',')} {name}" for name in ("passages", "queries", "judgments"))
    text = f"The dataset <b>{escape(facts['dataset'].value)}</b> has {counts}."
    if facts["phases"]:
        seconds = sum(phase.value["train_seconds"] for phase in facts["phases"] if "train_seconds" in phase)
        devices = {str(phase.value["device"]).replace("cpu", "CPU") for phase in facts["phases"] if "device" in phase}
        on = f" on {' and '.join(sorted(devices))}" if devices else ""
        queries = f" from {train['num_queries'].html(',')} training queries" if train else ""
        text += (
            f" The encoder <b>{escape(facts['encoder'].value)}</b> was trained{queries} in {len(facts['phases'])} "
            f"phases{escape(on)}, {seconds:,.0f} s of training in all."
        )
    speeds = [each for each in facts["cost"] if each["pairs_per_second"].value is not None]
    if speeds:
        text += f" The last model scores {speeds[-1]['pairs_per_second'].html(',.0f')} query-passage pairs a second."
    if facts["choice"]:
        finding = facts["choice"]["finding"].value
        text += f" {escape(finding[:1].upper() + finding[1:])}."
    return paragraph(text)


def _caption(facts: Facts, first: Facts, last: Facts) -> str:
    count = last["num_without_results"].value
    without = f" {last['title'].value} has no results for {count:,} queries, which count 0." if count else ""
    return (
        f"{facts['metric'].value} on the {facts['split'].value} split, {first['num_queries'].value:,} queries: mean "
        f"and 95 % bootstrap interval over queries. The band is the interval of {first['title'].value}.{without}"
    )


def _chart(runs: Sequence[Facts], metric: str) -> str:
    rows = []
    for run in runs:
        found = run["metrics"][metric].value
        values = (found["mean"], found["low"], found["high"])
        rows.append(Interval(run["title"].value, *values, f"{found['mean']:.4f}", 0 if run is runs[0] else 1))
    low = min(row.low for row in rows)
    high = from_zero("", [row.high for row in rows]).high
    return interval_chart(metric, rows, Scale(metric, 0.8 * low, high), band=(rows[0].low, rows[0].high))


def _table(runs: Sequence[Facts], first: str) -> str:
    header = ["metric", "run", "mean [95 % CI]", f"against {first} [95 % CI]", "p"]
    lines = []
    for metric in runs[0]["metrics"].value:
        found = [run["metrics"][metric] for run in runs]
        same = len(found) > 1 and all(_is_same(each) for each in found[1:])
        for run, each in zip(runs[:1] if same else runs, found, strict=False):
            name = "all runs" if same else run["title"].value
            compared = each.get("comparison")
            cells = [difference_html(compared), compared["p_value"].html("p")] if compared else ["", ""]
            lines.append([escape(metric), escape(name), mean_html(each), *cells])
    return table(header, lines, num_names=2)


def _is_same(found: Facts) -> bool:
    """Return whether a run does not differ in a metric, such as the recall of the same candidates."""
    compared = found.get("comparison")
    return bool(compared) and all(compared[name].value == 0 for name in ("difference", "low", "high"))
