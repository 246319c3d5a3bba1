"""Retrieval metrics per query, equal to trec_eval's.

Like trec_eval, every metric here orders a query's passages by score, ties by passage id (last first), and ignores the
rank column. Binary metrics count a passage as relevant from a given grade on; nDCG uses the grades themselves.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.metric_names import split_name
from rayrank.data.rows import long_column, ranks_within_query

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class GradedRanking:
    """The grades of ranked passages: the rows of a query lie together, best rank first."""

    def __init__(self, of_query: Ints, grades: Ints, num_queries: int, relevant_from: int) -> None:
        """Take each row's query number and grade; a query may have no rows."""
        self.ranks, self.grades, self.relevant = ranks_within_query(of_query), grades, grades >= relevant_from
        self._of_query, self._num_queries = of_query, num_queries

    def sum_per_query(self, values: Floats | NDArray[np.bool_], cutoff: int | None = None) -> Floats:
        """Return for each query the sum of a value over its rows, or over those down to rank `cutoff`."""
        counted = values if cutoff is None else values * (self.ranks <= cutoff)
        return np.bincount(self._of_query, weights=counted, minlength=self._num_queries).astype(np.float64)

    def dcg(self, cutoff: int | None) -> Floats:
        """Return each query's discounted cumulative gain."""
        return self.sum_per_query(self.grades / np.log2(self.ranks + 1), cutoff)

    @property
    def num_relevant_so_far(self) -> Ints:
        """For each relevant row the number of relevant rows of its query down to it; 0 for other rows."""
        so_far = np.cumsum(self.relevant)
        before = np.maximum.accumulate(np.where(self.ranks == 1, so_far - self.relevant, 0))
        return np.where(self.relevant, so_far - before, 0)


Metric = Callable[[GradedRanking, GradedRanking], Floats]
"""Takes a run's ranking and the ideal ranking (all judged passages, best grade first); returns one value per query."""


def reciprocal_rank(cutoff: int | None = None) -> Metric:
    """Return the metric: one over the rank of the first relevant passage."""
    return lambda run, ideal: run.sum_per_query((run.num_relevant_so_far == 1) / run.ranks, cutoff)


def precision(cutoff: int) -> Metric:
    """Return the metric: the share of relevant passages among the first `cutoff` ranks."""
    return lambda run, ideal: run.sum_per_query(run.relevant, cutoff) / cutoff


def recall(cutoff: int) -> Metric:
    """Return the metric: the share of a query's relevant passages that are within the first `cutoff` ranks."""
    return lambda run, ideal: _ratio(run.sum_per_query(run.relevant, cutoff), ideal.sum_per_query(ideal.relevant))


def average_precision(cutoff: int | None = None) -> Metric:
    """Return the metric: the mean, over a query's relevant passages, of the precision at their ranks, 0 if missed."""
    return lambda run, ideal: _ratio(
        run.sum_per_query(run.num_relevant_so_far / run.ranks, cutoff), ideal.sum_per_query(ideal.relevant)
    )


def ndcg(cutoff: int | None = None) -> Metric:
    """Return the metric: the discounted cumulative gain as a share of the ideal ranking's."""
    return lambda run, ideal: _ratio(run.dcg(cutoff), ideal.dcg(cutoff))


def _ratio(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


_FAMILIES: Mapping[str, Callable[[int], Metric]] = {
    "MRR": reciprocal_rank,
    "nDCG": ndcg,
    "MAP": average_precision,
    "P": precision,
    "R": recall,
}


def parse(name: str) -> Metric:
    """Return the metric of a name as ir_measures writes it, such as RR@10 or nDCG@5."""
    family, cutoff = split_name(name)
    # `split_name` refuses a family that needs a cutoff and has none.
    return _FAMILIES[family](cutoff)  # type: ignore[arg-type]


METRICS: Mapping[str, Metric] = {name: parse(name) for name in ("MRR@10", "nDCG@10", "MAP", "P@10", "R@100", "R@1000")}
"""The metrics that every evaluation reports."""


@dataclass(frozen=True)
class PerQuery:
    """One value per metric and judged query, in the order of `query_ids`."""

    query_ids: list[str]
    values: dict[str, Floats]
    num_without_results: int

    def means(self) -> dict[str, float]:
        """Return the mean of every metric over all judged queries."""
        return {name: float(values.mean()) for name, values in self.values.items()}


class JudgedRows:
    """A run joined to the judgments once, to be measured under one set of scores after another."""

    def __init__(self, qrels: pa.Table, run: pa.Table, relevant_from: int = 1) -> None:
        """Take the rows of queries with a judgment and leave out the others."""
        if not qrels.num_rows:
            raise DatasetError("There are no judgments to measure against: choose an evaluate.split that has some.")
        self._relevant_from = relevant_from
        self._queries = queries = _sorted_ids(long_column(qrels, "query_id"))
        self._has_judgment = pc.is_in(run["query_id"].cast(queries.type), queries).to_numpy()
        run = run.filter(pa.array(self._has_judgment))
        passages = _sorted_ids(pa.chunked_array([long_column(table, "passage_id") for table in (qrels, run)]))
        (judged_query, judged_passage), (self._of_query, self._passage) = (
            (_positions(table["query_id"], queries), _positions(table["passage_id"], passages))
            for table in (qrels, run)
        )
        pairs, first_rows = np.unique(judged_query * len(passages) + judged_passage, return_index=True)
        if len(pairs) < qrels.num_rows:
            raise DatasetError("The judgments name the same passage twice for a query: keep one of them.")
        self._check_passages()
        # A negative grade, such as that of spam, counts as 0 in every metric here.
        grades = np.maximum(qrels["relevance"].to_numpy().astype(np.int64), 0)
        wanted = self._of_query * len(passages) + self._passage
        nearest = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
        self._grades = np.where(pairs[nearest] == wanted, grades[first_rows[nearest]], 0)
        best_first = np.lexsort((-grades, judged_query))
        self._ideal = GradedRanking(judged_query[best_first], grades[best_first], len(queries), relevant_from)

    @property
    def query_ids(self) -> list[str]:
        """The queries with a judgment, in the order of their values."""
        return self._queries.to_pylist()  # type: ignore[no-any-return]

    def gains(self) -> Floats:
        """Return the grade of each row of the run if it is relevant, else 0."""
        found = np.zeros(len(self._has_judgment))
        found[self._has_judgment] = np.where(self._grades >= self._relevant_from, self._grades, 0)
        return found

    def measure(self, scores: NDArray[np.floating], metrics: Mapping[str, Metric] = METRICS) -> PerQuery:
        """Measure the ranking by these scores, one for each row of the run."""
        scores = scores[self._has_judgment]
        if (bad := np.flatnonzero(np.isnan(scores))).size:
            query_id = self._queries[self._of_query[bad[0]]].as_py()
            raise DatasetError(f"The run has a score that is not a number for the query {query_id!r}: score it again.")
        order = np.lexsort((-self._passage, -scores, self._of_query))
        ranking = GradedRanking(self._of_query[order], self._grades[order], len(self._queries), self._relevant_from)
        values = {name: metric(ranking, self._ideal) for name, metric in metrics.items()}
        without = len(self._queries) - len(np.unique(self._of_query))
        return PerQuery(self.query_ids, values, num_without_results=without)

    def measure_best(self, metrics: Mapping[str, Metric] = METRICS) -> PerQuery:
        """Measure the best order of the run's passages, which a perfect ranker would find."""
        grades = np.zeros(len(self._has_judgment))
        grades[self._has_judgment] = self._grades
        return self.measure(grades, metrics)

    def _check_passages(self) -> None:
        order = np.lexsort((self._passage, self._of_query))
        again = (np.diff(self._of_query[order]) == 0) & (np.diff(self._passage[order]) == 0)
        if again.any():
            query_id = self._queries[self._of_query[order[again.argmax()]]].as_py()
            raise DatasetError(f"The run names a passage twice for the query {query_id!r}: keep one of them.")


def per_query(
    qrels: pa.Table, run: pa.Table, metrics: Mapping[str, Metric] = METRICS, relevant_from: int = 1
) -> PerQuery:
    """Measure a run for every query with a judgment; a query without results has 0, one without judgments no value."""
    return JudgedRows(qrels, run, relevant_from).measure(run["score"].to_numpy(), metrics)


@dataclass(frozen=True)
class Measure:
    """The measure that selects models: a metric by its name, and the grade from which a judgment is relevant."""

    name: str = "MRR@10"
    relevant_from: int = 1

    @classmethod
    def of(cls, config: PipelineConfig) -> "Measure":
        """Return the measure that a configuration selects by."""
        return cls(config.training.metric, config.dataset.relevant_from)

    def values(self, qrels: pa.Table, run: pa.Table) -> Floats:
        """Return a run's value for every query with a judgment, in the order of their ids."""
        return per_query(qrels, run, {self.name: parse(self.name)}, self.relevant_from).values[self.name]

    def reported(self, qrels: pa.Table, run: pa.Table) -> PerQuery:
        """Measure a run by this metric, which comes first, and by all that an evaluation reports."""
        return per_query(qrels, run, {self.name: parse(self.name), **METRICS}, self.relevant_from)


MRR_10 = Measure()


def _sorted_ids(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    ids = column.unique()
    return ids.take(pc.array_sort_indices(ids))


def _positions(column: pa.ChunkedArray, sorted_ids: pa.Array) -> Ints:
    """Return each id's position among the sorted ones."""
    return pc.index_in(column.cast(sorted_ids.type), sorted_ids).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
