"""A comparison of two runs as text and Markdown: the groups of queries, then the largest gains and losses."""

import re

import rich.console
from rich.text import Text

from rayrank.measure.slices import Slice
from rayrank.reports.comparison import Case, ComparisonReport, Hit
from rayrank.reports.table import MetricsTable, difference_text, p_text

SHOWN_CHARACTERS = 300
"""Longer texts are cut in the cases of the report; the JSON file has them whole."""


def slice_table(report: ComparisonReport, heading: str, rows: list[Slice]) -> MetricsTable:
    """Return one line for each group of queries."""
    return slice_lines(heading, (report.run, report.baseline), report.procedure.level, rows)


def slice_lines(heading: str, names: tuple[str, str], level: float, rows: list[Slice]) -> MetricsTable:
    """Return one line for each group of queries, from the names of two runs and the level of the intervals."""
    header = [heading, "queries", *names, f"difference [{level:.0%} CI]", "p", "better", "equal", "worse"]
    lines = [
        [
            row.name, f"{row.num_queries:,}", f"{row.mean:.4f}", f"{row.baseline:.4f}",
            difference_text(row.comparison), p_text(row.comparison.p_value),
            *(f"{count:,}" for count in (row.wins, row.ties, row.losses)),
        ]
        for row in rows
    ]  # fmt: skip
    return MetricsTable(header, lines, num_names=1)


def all_tables(report: ComparisonReport) -> list[MetricsTable]:
    """Return the table of all queries and those of the groups."""
    grouped = [slice_table(report, heading, rows) for heading, rows in report.tables.items()]
    return [slice_table(report, "group", [report.overall]), *grouped]


def about(report: ComparisonReport) -> str:
    """Return what the tables show."""
    test = "paired randomisation test" if report.procedure.test == "randomisation" else "paired t-test"
    return (
        f"{report.metric} of {report.run} and {report.baseline} on {report.split}. Intervals: bootstrap over queries. "
        f"p: {test}, two-sided, Holm-corrected within a table. better, equal, worse: queries on which {report.run} is. "
        f"First-stage ranks are those of {report.first_stage}."
        + "".join(
            f" {name} has no passages for {count:,} of the queries, which count 0."
            for name, count in report.num_without_results.items()
            if count
        )
    )


def plain(report: ComparisonReport) -> rich.console.Group:
    """Return the tables for a terminal."""
    return rich.console.Group(*(table.plain() for table in all_tables(report)), Text(about(report)))


def markdown(report: ComparisonReport) -> str:
    """Return the report as Markdown, with the plots that lie beside it."""
    parts = [f"# {report.run} against {report.baseline}\n", about(report) + "\n"]
    for table in all_tables(report):
        parts += [table.markdown()]
    parts += ["![difference by query](differences.png)\n", "![difference by group of queries](groups.png)\n"]
    for heading, cases in (("Largest gains", report.gains), ("Largest losses", report.losses)):
        parts += [f"## {heading}\n", *(_case(report, case) for case in cases)] if cases else []
    return "\n".join(parts)


def _case(report: ComparisonReport, case: Case) -> str:
    lines = [f"### {cut_text(case.query)}\n"]
    kind = f", type {case.query_type}" if case.query_type else ""
    lines.append(
        f"Query {escaped(case.query_id)}{kind}: {report.metric} {case.baseline:.3f} with {report.baseline}, "
        f"{case.value:.3f} with {report.run}.\n"
    )
    if case.relevant:
        ranks = f"{report.baseline}: {_rank(case.baseline_rank)}, {report.run}: {_rank(case.rank)}"
        lines.append(f"Relevant ({ranks}): {cut_text(case.relevant.text)}\n")
    for name, hits in ((report.baseline, case.baseline_top), (report.run, case.top)):
        lines += [f"Top of {name}:\n", *(_hit(number, hit) for number, hit in enumerate(hits, 1)), ""]
    return "\n".join(lines)


def _hit(number: int, hit: Hit) -> str:
    text = cut_text(hit.text) if hit.text else "(not in the corpus)"
    return f"{number}. {'**relevant** ' if hit.is_relevant else ''}{text} ({escaped(hit.passage_id)})"


def _rank(rank: int) -> str:
    return f"rank {rank}" if rank else "not found"


def cut_text(text: str) -> str:
    """Return a text for Markdown in one line, cut if it is long."""
    text = " ".join(text.split())
    return escaped(text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…")


def escaped(text: str) -> str:
    """Return a text that Markdown shows as it is: texts of a corpus may hold HTML, links and marks of headings."""
    return re.sub(r"[\\`*_\[\]<>#|$~!&]|^[+-]|(?<=^\d)[.)]", lambda found: "\\" + found.group(0), text)
