"""First stages compared: what each of them finds, what rankers do with its candidates, how much two of them overlap."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import TypeAdapter

from rayrank.data.rows import long_column
from rayrank.measure.places import Places, Shares, shares
from rayrank.measure.significance import Comparison, Interval, compare, holm, mean_interval
from rayrank.reports.ablation import PROCEDURE, Procedure

Ints = NDArray[np.int64]
Matrix = list[list[float]]

OVERLAPS = (10, 100)
"""Ranks down to which two first stages are compared passage by passage."""
BELOW = np.iinfo(np.int32).max
"""The rank of a passage that a run does not have in its top."""


@dataclass(frozen=True)
class FirstStage:
    """A first stage on one split; the reference has no comparison."""

    title: str
    depth: int
    mrr: Interval
    recall: dict[int, float]
    out_of_reach: float
    comparison: Comparison | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class Ranked:
    """The candidates of a first stage in the order of one run: its own, a ranker's or a combiner's."""

    candidates: str
    ranked_by: str
    shares: Shares
    mrr: float
    perfect: float
    """The MRR of a ranker that puts a relevant passage first wherever the candidates have one."""


@dataclass(frozen=True)
class SplitReport:
    """All figures of one split. Rows and columns of matrices are the first stages in their order."""

    split: str
    num_queries: int
    num_without_relevant: int
    """Queries whose judgments are all below the relevant grade: no run can reach them."""
    first_stages: list[FirstStage]
    ranked: list[Ranked]
    common: dict[int, Matrix]
    """By cutoff the mean share of passages that two first stages have in common."""
    only: Matrix
    """The share of queries that the row's first stage has within reach and the column's has not."""
    missing: list[str]
    """First stages without any rows in this split."""


@dataclass(frozen=True)
class Cost:
    """What searching costs; None where another system searched."""

    queries_per_second: float | None
    num_bytes: int | None


@dataclass(frozen=True)
class FirstStageReport:
    """The whole report; `reference` is the first stage that the others are compared with."""

    reference: str
    splits: list[SplitReport]
    costs: dict[str, Cost]
    unordered: list[str]
    """First stages without scores: their order, and so their MRR and recall above the depth, may mean nothing."""
    procedure: Procedure

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return TypeAdapter(FirstStageReport).dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, value: object) -> "FirstStageReport":
        """Return the report that `to_json` was called on."""
        return TypeAdapter(FirstStageReport).validate_python(value)


class Measured(NamedTuple):
    """A first stage on one split: where it places relevant passages, and its `top_rows`."""

    places: Places
    top: pa.Table


class RankedBy(NamedTuple):
    """A ranker's or combiner's run over the candidates of a first stage."""

    candidates: str
    title: str
    places: Places


@dataclass(frozen=True)
class Tops:
    """The first ranks of several runs, joined by query and passage."""

    num_queries: int
    of_query: Ints
    """The query of each pair, as its position among the judged queries."""
    ranks: NDArray[np.int32]
    """(runs, pairs); BELOW where a run does not have the pair in its top."""

    @classmethod
    def of(cls, runs: Sequence[pa.Table], qrels: pa.Table) -> "Tops":
        """Join the first ranks of judged queries; ranks are those that the runs store."""
        queries = long_column(qrels, "query_id").unique()
        tops = [top_rows(run.filter(pc.is_in(run["query_id"].cast(queries.type), queries))) for run in runs]
        rows = pa.concat_tables(tops)
        of_query = pc.index_in(long_column(rows, "query_id"), queries).to_numpy().astype(np.int64)
        passages = long_column(rows, "passage_id").dictionary_encode().indices.to_numpy().astype(np.int64)
        pairs, place = np.unique(of_query << 32 | passages, return_inverse=True)
        of_run = np.repeat(np.arange(len(runs)), [len(top) for top in tops])
        ranks = np.full((len(runs), len(pairs)), BELOW, np.int32)
        ranks[of_run, place] = rows["rank"].to_numpy()
        return cls(len(queries), pairs >> 32, ranks)

    def common(self, one: int, other: int, cutoff: int) -> float:
        """Return the mean share of passages down to a rank that two runs have in common.

        It is a share of the longer list, where a query has fewer passages; a query without any in both runs is left
        out.
        """
        inside = self.ranks[[one, other]] <= cutoff
        both, *lengths = (
            np.bincount(self.of_query[rows], minlength=self.num_queries) for rows in (inside.all(axis=0), *inside)
        )
        longer = np.maximum(*lengths)
        filled = longer > 0
        return float((both[filled] / longer[filled]).mean()) if filled.any() else 0.0


def top_rows(run: pa.Table) -> pa.Table:
    """Return the rows that `Tops` needs of a run."""
    top = run.filter(pc.less_equal(run["rank"], max(OVERLAPS)))
    return top.select(["query_id", "passage_id", "rank"]).replace_schema_metadata(None)


def split_report(
    split: str,
    qrels: pa.Table,
    runs: Mapping[str, Measured | None],
    rankers: Sequence[RankedBy],
    reference: str,
    relevant_from: int = 1,
    procedure: Procedure = PROCEDURE,
) -> SplitReport:
    """Compare first stages on the judged queries of a split; one without any rows there is given as None."""
    measured = {title: run for title, run in runs.items() if run}
    found = {title: run.places for title, run in measured.items()}
    relevant = qrels.filter(pc.greater_equal(qrels["relevance"], relevant_from))
    num_queries = len(qrels["query_id"].unique())
    return SplitReport(
        split,
        num_queries,
        num_queries - len(relevant["query_id"].unique()),
        _compared(found, reference, procedure),
        _ranked([RankedBy(title, title, each) for title, each in found.items()], rankers),
        _common(Tops.of([run.top for run in measured.values()], qrels), list(found.values())) if found else {},
        [[float(((a.first > 0) & (b.first == 0)).mean()) for b in found.values()] for a in found.values()],
        [title for title in runs if title not in found],
    )


def _ranked(own: Sequence[RankedBy], rankers: Sequence[RankedBy]) -> list[Ranked]:
    """Return the orders of each first stage's candidates, its own first."""
    orders = [order for alone in own for order in (alone, *(run for run in rankers if run.candidates == alone.title))]
    found = []
    for order in orders:
        mrr, reached = float(order.places.reciprocal.mean()), float((order.places.first > 0).mean())
        found.append(Ranked(order.candidates, order.title, shares(order.places.first), mrr, reached))
    return found


def _common(tops: Tops, found: Sequence[Places]) -> dict[int, Matrix]:
    """Return a matrix for every cutoff that some first stage is deep enough for.

    Of two first stages the shallower one decides how far they are compared.
    """
    deepest = max(each.depth for each in found)
    cutoffs = sorted({min(cutoff, deepest) for cutoff in OVERLAPS})
    return {
        cutoff: [
            [tops.common(i, j, min(cutoff, a.depth, b.depth)) for j, b in enumerate(found)] for i, a in enumerate(found)
        ]
        for cutoff in cutoffs
    }


def _compared(found: Mapping[str, Places], reference: str, procedure: Procedure) -> list[FirstStage]:
    """Return each first stage's figures, compared with the reference if that has rows, corrected over the others."""
    test, resamples, seed, level = procedure.test, procedure.resamples, procedure.seed, procedure.level
    others = [title for title in found if title != reference and reference in found]
    comparisons = {
        title: compare(found[title].reciprocal, found[reference].reciprocal, test, resamples, seed, level)
        for title in others
    }
    corrected = dict(zip(others, holm([comparisons[title].p_value for title in others]), strict=True))
    return [
        FirstStage(
            title,
            each.depth,
            mean_interval(each.reciprocal, resamples, seed, level),
            each.recall,
            float((each.first == 0).mean()),
            comparisons.get(title),
            corrected.get(title),
        )
        for title, each in found.items()
    ]
