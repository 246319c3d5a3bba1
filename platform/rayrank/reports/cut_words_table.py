"""The report on cut words as text and Markdown: both models on queries with cut words, mean ranks, and cases."""

from collections.abc import Callable

import rich.console
from rich.text import Text

from rayrank.reports.comparison_table import cut_text, escaped, slice_lines
from rayrank.reports.cut_words import WITH, WITHOUT, Case, CutWordsReport, SharedWord
from rayrank.reports.table import MetricsTable, p_text


def queries_table(report: CutWordsReport) -> MetricsTable:
    """Return the selection metric of both models on all queries, and on those with and without cut words."""
    return slice_lines("queries", (WITH, WITHOUT), report.procedure.level, report.queries)


def ranks_table(report: CutWordsReport) -> MetricsTable:
    """Return the mean rank of passages that share pieces, and of those that do not, with both models."""
    header = ["passages that are not relevant", "queries", "pairs", f"mean rank {WITHOUT}", f"mean rank {WITH}"]
    lines = [
        [
            group.name, f"{group.num_queries:,}", f"{group.num_pairs:,}",
            *("" if mean is None else f"{mean:.2f}" for mean in (group.plain_mean_rank, group.mean_rank)),
            *(f"{count:,}" for count in (group.num_lower, group.num_equal, group.num_higher)),
        ]
        for group in report.groups
    ]  # fmt: skip
    return MetricsTable([*header, "STRM lower", "equal", "STRM higher"], lines, num_names=1)


def cases_table(cases: list[Case], shown: Callable[[str], str] = str) -> MetricsTable:
    """Return one line for each case: the paper's Table 3; `shown` makes the cells of its texts."""
    header = ["query", "cut word", "in the passage", f"rank {WITHOUT}", f"rank {WITH}"]
    lines = [
        [
            shown(case.query), shown("; ".join(f"{each.word}: {' '.join(each.pieces)}" for each in case.words)),
            shown("; ".join(map(_others, case.words))), f"{case.plain_rank:,}", f"{case.rank:,}",
            p_text(case.plain_probability), p_text(case.probability),
        ]
        for case in cases
    ]  # fmt: skip
    return MetricsTable([*header, f"probability {WITHOUT}", f"probability {WITH}"], lines, num_names=3)


def about(report: CutWordsReport) -> str:
    """Return what the tables show."""
    test = "paired randomisation test" if report.procedure.test == "randomisation" else "paired t-test"
    return (
        f"{report.run} with STRM (strm.form={report.form}) and without, each trained with its own attention, on "
        f"{report.split}; up to {report.num_candidates:,} candidates of a query. A cut word is a word of the query "
        f"that the tokenizer cuts into several pieces. A passage shares pieces if it has one of these pieces, of two "
        f"letters or more, but not the word itself, its plural or its singular. {report.metric} is tested by a {test}, "
        f"two-sided, "
        f"Holm-corrected. STRM lower: pairs that the model with STRM ranks lower. What one model ranks high, another "
        f"model ranks lower on average, so compare the passages that share pieces with those that share none, and the "
        f"top {report.top} of both models. Probabilities: {report.probabilities}."
    )


def plain(report: CutWordsReport) -> rich.console.Group:
    """Return the tables for a terminal."""
    tables = [queries_table(report), ranks_table(report)]
    tables += [cases_table(cases) for cases in (report.lowered, report.raised) if cases]
    return rich.console.Group(*(table.plain() for table in tables), Text(about(report)))


def markdown(report: CutWordsReport) -> str:
    """Return the report as Markdown, with the pictures that lie beside it."""
    parts = [f"# Cut words: {report.run} with and without STRM\n", about(report) + "\n"]
    parts += [queries_table(report).markdown(), ranks_table(report).markdown()]
    lower, higher = report.groups[1].num_lower, report.groups[2].num_higher
    headings = (
        (report.lowered, f"Ranked lower with STRM: the clearest of {lower:,} in the top {report.top} {WITHOUT}"),
        (report.raised, f"The other way: the clearest of {higher:,} in the top {report.top} {WITH}"),
    )
    for cases, heading in headings:
        if cases:
            parts += [f"## {heading}\n", cases_table(cases, _cell).markdown(), *map(_case, cases)]
    if report.attention:
        shown = "the last layer" if report.layers == "last" else "all layers"
        parts += [
            "## Attention\n",
            f"From the query's pieces (rows) to the passage's (columns), mean over the heads of {shown}. Orange: the "
            f"pieces of the cut word, and those that the passage shares.\n",
            *(f"![case {number}]({picture_name(number)})\n" for number in range(1, len(report.attention) + 1)),
        ]
    return "\n".join(parts)


def picture_name(number: int) -> str:
    """Return the file name of the picture of a case, counted from 1."""
    return f"attention-{number}.png"


def _case(case: Case) -> str:
    judged = "judged not relevant" if case.is_judged else "unjudged"
    return f"- {cut_text(case.query)} ({escaped(case.passage_id)}, {judged}): {cut_text(case.passage)}\n"


def _others(shared: SharedWord) -> str:
    return ", ".join(map(" ".join, shared.others))


def _cell(text: str) -> str:
    """Return a text for a cell of a Markdown table, which escapes | itself."""
    return cut_text(text).replace(r"\|", "|")
