"""Retrieval or ranking: for how many queries the answer is out of reach, within reach, and first."""

from collections.abc import Sequence
from html import escape

from rayrank.reports.page.axes import Scale, percent, plain
from rayrank.reports.page.chart import Chart, Plot
from rayrank.reports.page.document import Section, missing, paragraph, table
from rayrank.reports.page.facts import Facts
from rayrank.reports.page.rows import Bar, bar_chart

NAME, TITLE = "reach", "Retrieval or ranking?"
PLACES = {
    "first": ("first", 2),
    "in_top": ("ranks 2 to 10", 5),
    "below_top": ("below rank 10", 4),
    "out_of_reach": ("out of reach", 6),
}
"""The places of the first relevant passage, with the colours of their bars."""


def section(facts: Facts, command: str) -> Section:
    """Return where every run has the first relevant passage, and what is left to gain."""
    if not facts["reach"]:
        return missing(NAME, TITLE, "No run has been made yet:", command)
    reach = facts["reach"]
    runs = list(reach["runs"])
    count = f"{reach['num_queries'].value:,} queries"
    recall = (
        "Mean share of the relevant passages down to a rank. Rankers move passages up; only another first stage raises "
        "the end of the curve."
    )
    charts = [
        Chart("reach", _bars(runs), f"Where each run has the first relevant passage, {count}."),
        Chart("recall", _recall(runs), recall),
    ]
    return Section(NAME, TITLE, [_advice(facts, reach), charts, _table(runs)])


def _advice(facts: Facts, reach: Facts) -> str:
    first, metric = facts["first_stage"].value, facts["metric"].value
    best = max(facts["evaluations"], key=lambda run: run["metrics"][metric]["mean"].value)
    mean, perfect = best["metrics"][metric]["mean"], reach["perfect_ranker"]
    out = reach["runs"][0]["shares"]["out_of_reach"]
    ranking, retrieval = max(0.0, perfect.value - mean.value), 1 - perfect.value
    larger = "a better ranker" if ranking > retrieval else "a better first stage"
    return paragraph(
        f"{escape(first)} does not find a relevant passage for {out.html('.1%')} of the queries: no ranker of its "
        f"candidates can answer them. A perfect ranker of these candidates would reach {escape(metric)} "
        f"{perfect.html('.4f')}; the best run, {escape(best['title'].value)}, has {mean.html('.4f')}. So a better "
        f"ranker can still gain {ranking:.4f}, and a better first stage up to {retrieval:.4f}: <b>{larger}</b> would "
        f"bring more."
    )


def _bars(runs: Sequence[Facts]) -> str:
    rows = [
        Bar(run["title"].value, [(run["shares"][place].value, series) for place, (_, series) in PLACES.items()])
        for run in runs
    ]
    return bar_chart(TITLE, rows, Scale("share of the queries", 0, 1, form=percent), list(PLACES.values()))


def _recall(runs: Sequence[Facts]) -> str:
    curves = [[(point["rank"].value, point["recall"].value) for point in run["recall"]] for run in runs]
    deepest = max(curve[-1][0] for curve in curves)
    marks = tuple(
        rank for rank in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000) if deepest <= 100 or f"{rank}"[0] == "1"
    )
    x = Scale("rank (log scale)", 1, max(2, deepest), is_log=True, form=plain, marks=marks)
    names = [(run["title"].value, number) for number, run in enumerate(runs)]
    plot = Plot("Recall by rank", x, Scale("recall", 0, 1, form=percent), names)
    for number, curve in enumerate(curves):
        plot.line(curve, number, with_markers=True)
    return plot.svg()


def _table(runs: Sequence[Facts]) -> str:
    lines = []
    for run in runs:
        shares, deepest = (run["shares"][place].html(".1%") for place in PLACES), run["recall"][-1]
        cells = (deepest["rank"].html(","), deepest["recall"].html(".4f"))
        lines.append([escape(run["title"].value), *shares, *cells])
    return table(["run", *(name for name, _ in PLACES.values()), "depth", "recall at that depth"], lines)
