"""The figures of a run, query by query, equal to what trec_eval prints.

trec_eval orders a query's passages by score, ties by passage id (last first), and ignores the rank column;
so does everything here. A passage is relevant if its relevance is 1 or more; grades matter to nDCG only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core.errors import DatasetError
from rayrank.data.rows import long_column, places

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Graded:
    """Graded passages, query by query, and within each from the best place on."""

    def __init__(self, of_query: Ints, grade: Ints, num_queries: int) -> None:
        """Take rows in order; there may be queries without any."""
        self.place, self.grade, self.relevant = places(of_query), grade, grade > 0
        self._of_query, self._num_queries = of_query, num_queries

    def total(self, of_row: Floats | NDArray[np.bool_], depth: int | None = None) -> Floats:
        """Return each query's sum of a value over its rows, or over the first of them."""
        counted = of_row if depth is None else of_row * (self.place <= depth)
        return np.bincount(self._of_query, weights=counted, minlength=self._num_queries).astype(np.float64)

    def gain(self, depth: int) -> Floats:
        """Return each query's sum of grades, those further down discounted."""
        return self.total(self.grade / np.log2(self.place + 1), depth)

    @property
    def hits(self) -> Ints:
        """How many relevant passages a query has down to each row; 0 where the row is not relevant itself."""
        so_far = np.cumsum(self.relevant)
        before = np.maximum.accumulate(np.where(self.place == 1, so_far - self.relevant, 0))
        return np.where(self.relevant, so_far - before, 0)


Metric = Callable[[Graded, Graded], Floats]
"""From what a run found, and from all that is judged, the best first, to one value a query."""


def reciprocal_rank(depth: int | None = None) -> Metric:
    """Return the metric that is one over the place of the first relevant passage."""
    return lambda found, judged: found.total((found.hits == 1) / found.place, depth)


def precision(depth: int) -> Metric:
    """Return the metric that is the share of relevant passages in the first places."""
    return lambda found, judged: found.total(found.relevant, depth) / depth


def recall(depth: int) -> Metric:
    """Return the metric that is the share of all relevant passages that stand in the first places."""
    return lambda found, judged: _share(found.total(found.relevant, depth), judged.total(judged.relevant))


def average_precision(found: Graded, judged: Graded) -> Floats:
    """Return the mean of the precisions at all relevant passages' places, 0 for those not found."""
    return _share(found.total(found.hits / found.place), judged.total(judged.relevant))


def ndcg(depth: int) -> Metric:
    """Return the metric that is the share of the greatest possible gain."""
    return lambda found, judged: _share(found.gain(depth), judged.gain(depth))


def _share(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


METRICS: Mapping[str, Metric] = {
    "MRR@10": reciprocal_rank(10),
    "nDCG@10": ndcg(10),
    "MAP": average_precision,
    "P@10": precision(10),
    "R@100": recall(100),
    "R@1000": recall(1000),
}


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
    """The rows of a run beside their judgments, to be measured under one score after another."""

    def __init__(self, qrels: pa.Table, run: pa.Table) -> None:
        """Take the rows of queries with a judgment; others are left out."""
        if not qrels.num_rows:
            raise DatasetError("There are no judgments to measure against: choose an evaluate.split that has some.")
        self._queries = queries = _sorted_names(long_column(qrels, "query_id"))
        self._counts = pc.is_in(run["query_id"].cast(queries.type), queries).to_numpy()
        run = run.filter(pa.array(self._counts))
        passages = _sorted_names(pa.chunked_array([long_column(table, "passage_id") for table in (qrels, run)]))
        (judged_query, judged_passage), (self._of_query, self._passage) = (
            (_numbers(table["query_id"], queries), _numbers(table["passage_id"], passages)) for table in (qrels, run)
        )
        pairs, first_rows = np.unique(judged_query * len(passages) + judged_passage, return_index=True)
        if len(pairs) < qrels.num_rows:
            raise DatasetError("The judgments name the same passage twice for a query: keep one of them.")
        self._check_passages()
        # Below 0 is "not relevant" to every metric here.
        grades = np.maximum(qrels["relevance"].to_numpy().astype(np.int64), 0)
        wanted = self._of_query * len(passages) + self._passage
        nearest = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
        self._grades = np.where(pairs[nearest] == wanted, grades[first_rows[nearest]], 0)
        best = np.lexsort((-grades, judged_query))
        self._judged = Graded(judged_query[best], grades[best], len(queries))

    def measure(self, scores: NDArray[np.floating], metrics: Mapping[str, Metric] = METRICS) -> PerQuery:
        """Measure the order that scores, one for each row of the run, put them in."""
        scores = scores[self._counts]
        if (bad := np.flatnonzero(np.isnan(scores))).size:
            query_id = self._queries[self._of_query[bad[0]]].as_py()
            raise DatasetError(f"The run has a score that is not a number for the query {query_id!r}: score it again.")
        order = np.lexsort((-self._passage, -scores, self._of_query))
        found = Graded(self._of_query[order], self._grades[order], len(self._queries))
        values = {name: metric(found, self._judged) for name, metric in metrics.items()}
        without = len(self._queries) - len(np.unique(self._of_query))
        return PerQuery(self._queries.to_pylist(), values, num_without_results=without)

    def _check_passages(self) -> None:
        order = np.lexsort((self._passage, self._of_query))
        again = (np.diff(self._of_query[order]) == 0) & (np.diff(self._passage[order]) == 0)
        if again.any():
            query_id = self._queries[self._of_query[order[again.argmax()]]].as_py()
            raise DatasetError(f"The run names a passage twice for the query {query_id!r}: keep one of them.")


def per_query(qrels: pa.Table, run: pa.Table, metrics: Mapping[str, Metric] = METRICS) -> PerQuery:
    """Measure a run for every query with a judgment; one without results scores 0, unjudged ones are left out."""
    return JudgedRows(qrels, run).measure(run["score"].to_numpy(), metrics)


def _sorted_names(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    names = column.unique()
    return names.take(pc.array_sort_indices(names))


def _numbers(column: pa.ChunkedArray, names: pa.Array) -> Ints:
    """Return each value's place among the sorted names."""
    return pc.index_in(column.cast(names.type), names).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
