"""The report on first stages as text and Markdown: for each split what they find, who loses what, and the overlap."""

import rich.console
from rich.text import Text

from rayrank.measure.places import CUTOFFS, TOP
from rayrank.reports.first_stages import FirstStage, FirstStageReport, Matrix, SplitReport
from rayrank.reports.table import MetricsTable, mean_text, p_text

EMPTY_CELL = "-"
Section = tuple[str, MetricsTable, str]
"""A heading, a table, and what its columns mean."""


def stage_table(report: FirstStageReport, part: SplitReport) -> MetricsTable:
    """Return one line for each first stage: what it finds and what searching costs."""
    deepest = max((stage.depth for stage in part.first_stages), default=0)
    cutoffs = [cutoff for cutoff in CUTOFFS if cutoff <= deepest]
    header = ["first stage", "depth", f"MRR@{TOP} [{report.procedure.level:.0%} CI]", "p"]
    header += [*(f"R@{cutoff}" for cutoff in cutoffs), "out of reach", "queries/s", "size"]
    lines = []
    for stage in part.first_stages:
        cost = report.costs[stage.title]
        speed = EMPTY_CELL if cost.queries_per_second is None else speed_text(cost.queries_per_second)
        size = EMPTY_CELL if cost.num_bytes is None else size_text(cost.num_bytes)
        recalls = [_recall(stage, cutoff) for cutoff in cutoffs]
        p_value = "" if stage.p_holm is None else p_text(stage.p_holm)
        found = [stage.title, f"{stage.depth:,}", mean_text(stage.mrr), p_value, *recalls]
        lines.append([*found, f"{stage.out_of_reach:.1%}", speed, size])
    return MetricsTable(header, lines, num_names=1)


def ranking_table(part: SplitReport) -> MetricsTable:
    """Return one line for each order of each first stage's candidates: the shares of queries by their first answer."""
    header = ["candidates", "ranked by", "out of reach", f"below rank {TOP}", f"rank 2 to {TOP}", "rank 1"]
    header += [f"MRR@{TOP}", "perfect ranker"]
    lines = []
    for row in part.ranked:
        places = (row.shares.out_of_reach, row.shares.below_top, row.shares.in_top, row.shares.first)
        figures = [f"{row.mrr:.4f}", f"{row.perfect:.4f}"]
        lines.append([row.candidates, row.ranked_by, *(f"{share:.1%}" for share in places), *figures])
    return MetricsTable(header, lines)


def sections(report: FirstStageReport, part: SplitReport) -> list[Section]:
    """Return the tables of a split, each with its heading and its explanation."""
    found: list[Section] = [
        ("What each first stage finds", stage_table(report, part), _about_stages(report, part)),
        ("Retrieval or ranking", ranking_table(part), " ".join([_ABOUT_RANKING, *losses(report, part)])),
    ]
    titles = [stage.title for stage in part.first_stages]
    if len(titles) < 2:
        return found
    for cutoff, matrix in part.common.items():
        about = (
            f"Mean share of the first {cutoff:,} passages that two first stages have in common; of two, the shallower "
            f"one decides how far they are compared."
        )
        found.append((f"Common passages in the top {cutoff:,}", _matrix_table("", titles, matrix), about))
    about = "Share of the queries that the first stage of the row has within reach and that of the column has not."
    return [*found, ("Within reach of one alone", _matrix_table("reached by, not by", titles, part.only), about)]


def losses(report: FirstStageReport, part: SplitReport) -> list[str]:
    """Return a sentence on the best order of the reference's candidates: how much retrieval and ranking lose."""
    orders = [row for row in part.ranked if row.candidates == report.reference]
    if not orders:
        return []
    best = max(orders, key=lambda row: row.mrr)
    order = "in its own order" if best.ranked_by == best.candidates else f"ranked by {best.ranked_by}"
    return [
        f"Candidates of {best.candidates}, {order}: MRR@{TOP} is {best.mrr:.4f}; retrieval loses "
        f"{1 - best.perfect:.4f}, ranking loses {best.perfect - best.mrr:.4f}."
    ]


def plain(report: FirstStageReport) -> rich.console.Group:
    """Return all tables for a terminal."""
    drawn: list[rich.console.RenderableType] = []
    for part in report.splits:
        for heading, table, about in sections(report, part):
            drawn += [Text(f"{part.split}: {heading}"), table.plain(), Text(about + "\n")]
    return rich.console.Group(*drawn)


def markdown(report: FirstStageReport) -> str:
    """Return all tables as Markdown, with the plots that lie beside them."""
    parts = ["# First stages\n"]
    for part in report.splits:
        parts.append(f"## {part.split}\n")
        for heading, table, about in sections(report, part):
            parts += [f"### {heading}\n", table.markdown(), about + "\n"]
        parts += [
            f"![recall of each first stage](recall-{part.split}.png)\n",
            f"![place of the first relevant passage](ranking-{part.split}.png)\n",
        ]
    return "\n".join(parts)


def speed_text(queries_per_second: float) -> str:
    """Return queries a second, with two digits where there are few."""
    return f"{queries_per_second:,.0f}" if queries_per_second >= 10 else f"{queries_per_second:.2g}"


def size_text(num_bytes: int) -> str:
    """Return a number of bytes in the largest unit that leaves at least 1."""
    size = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


_ABOUT_RANKING = (
    f"Shares of all queries by the rank of their first relevant passage; out of reach: none of the candidates is "
    f"relevant, so no ranker can help. perfect ranker: the MRR@{TOP} of one that puts a relevant passage first "
    f"wherever the candidates have one."
)


def _about_stages(report: FirstStageReport, part: SplitReport) -> str:
    chosen = report.procedure
    test = "paired randomisation test" if chosen.test == "randomisation" else "paired t-test"
    text = [
        f"{part.split} split, {part.num_queries:,} queries. Intervals by bootstrap over queries. p: {test} against "
        f"{report.reference}, two-sided, Holm-corrected. R@k: mean recall, not shown beyond a run's depth, which is "
        f"the largest number of candidates of a query. out of reach: queries without a relevant passage among their "
        f"candidates. queries/s: queries of all splits over the seconds that making the run took, including the start "
        f"of workers and the runs that it reads, excluding the index, the vectors of passages and those of queries; "
        f"of a run that was interrupted only the last part counts. size: the index or the vectors that are searched."
    ]
    if part.num_without_relevant:
        text.append(
            f"{part.num_without_relevant:,} queries have no relevant passage at all, and count as out of reach."
        )
    if part.missing:
        text.append(f"No rows in this split: {', '.join(part.missing)}.")
    if unordered := [stage.title for stage in part.first_stages if stage.title in report.unordered]:
        text.append(f"No scores: {', '.join(unordered)}; figures that depend on the order may mean nothing.")
    return " ".join(text)


def _recall(stage: FirstStage, cutoff: int) -> str:
    return f"{stage.recall[cutoff]:.4f}" if cutoff in stage.recall else EMPTY_CELL


def _matrix_table(corner: str, titles: list[str], matrix: Matrix) -> MetricsTable:
    lines = [
        [title, *(EMPTY_CELL if row == column else f"{share:.1%}" for column, share in enumerate(shares))]
        for row, (title, shares) in enumerate(zip(titles, matrix, strict=True))
    ]
    return MetricsTable([corner, *titles], lines, num_names=1)
