"""The figures of a run, query by query, equal to what trec_eval prints.

trec_eval orders a query's passages by score, ties by passage id (last first), and ignores the rank column;
so does everything here. A passage is relevant if its relevance is 1 or more; grades matter to nDCG only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import ir_measures
import numpy as np
import pyarrow as pa
from ir_measures import AP, RR, Measure, P, R, nDCG
from numpy.typing import NDArray

from rayrank.errors import DatasetError
from rayrank.evaluation.rows import by_query, long_column

METRICS: Mapping[str, Measure] = {
    "MRR@10": RR @ 10,
    "nDCG@10": nDCG @ 10,
    "MAP": AP,
    "P@10": P @ 10,
    "R@100": R @ 100,
    "R@1000": R @ 1000,
}

# trec_eval is fed Python dictionaries, some 200 bytes a row: a hundred queries bound them, at any depth.
QUERIES_AT_ONCE = 100

Ranking = dict[str, float]


@dataclass(frozen=True)
class PerQuery:
    """One value per metric and judged query, in the order of `query_ids`."""

    query_ids: list[str]
    values: dict[str, NDArray[np.float64]]
    num_without_results: int

    def means(self) -> dict[str, float]:
        """Return the mean of every metric over all judged queries."""
        return {name: float(values.mean()) for name, values in self.values.items()}


def per_query(qrels: pa.Table, run: pa.Table, metrics: Mapping[str, Measure] = METRICS) -> PerQuery:
    """Measure a run for every query with a judgment; one without results scores 0, unjudged ones are left out."""
    judgments = _judgments(qrels)
    query_ids = sorted(judgments)
    place = {query_id: index for index, query_id in enumerate(query_ids)}
    values = {name: np.zeros(len(query_ids)) for name in metrics}
    measures = {name: _whole_ranking(measure) for name, measure in metrics.items()}
    num_with_results = 0
    for rankings in _rankings(run, judgments):
        num_with_results += len(rankings)
        judged = {query_id: judgments[query_id] for query_id in rankings}
        evaluator = ir_measures.pytrec_eval.evaluator(set(measures.values()), judged)
        found = {(m.query_id, m.measure): m.value for m in evaluator.iter_calc(rankings)}
        for name, measure in measures.items():
            for query_id in rankings:
                value = found[query_id, measure]
                values[name][place[query_id]] = value if value >= _smallest(metrics[name]) else 0.0
    return PerQuery(query_ids, values, num_without_results=len(query_ids) - num_with_results)


def _whole_ranking(measure: Measure) -> Measure:
    """Return RR for RR@k, which ir_measures would hand to a provider that breaks ties the other way round."""
    if measure.NAME != RR.NAME:
        return measure
    return type(measure)(**{key: value for key, value in measure.params.items() if key != "cutoff"})


def _smallest(measure: Measure) -> float:
    """Return the smallest value that counts: 1/k for RR@k, whose first relevant passage is at rank k or above."""
    if measure.NAME != RR.NAME or "cutoff" not in measure.params:
        return 0.0
    return 1.0 / float(measure.params["cutoff"])


def _judgments(qrels: pa.Table) -> dict[str, dict[str, int]]:
    if not qrels.num_rows:
        raise DatasetError("There are no judgments to measure against: choose an evaluate.split that has some.")
    judgments: dict[str, dict[str, int]] = {}
    columns = (qrels[name].to_pylist() for name in ("query_id", "passage_id", "relevance"))
    for query_id, passage_id, relevance in zip(*columns, strict=True):
        # Below 0 is "not relevant" to every metric here, but trec_eval indexes an array with it.
        judgments.setdefault(query_id, {})[passage_id] = max(relevance, 0)
    if sum(map(len, judgments.values())) != qrels.num_rows:
        raise DatasetError("The judgments name the same passage twice for a query: keep one of them.")
    return judgments


def _rankings(run: pa.Table, judged: Mapping[str, object]) -> Iterator[dict[str, Ranking]]:
    """Yield the scored passages of judged queries, some queries at a time."""
    query_ids, codes = by_query(run)
    passage_ids, scores = long_column(run, "passage_id"), run["score"].to_numpy()
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=len(query_ids)))
    starts = [0, *ends[:-1]]
    wanted = [code for code, query_id in enumerate(query_ids) if query_id in judged]
    for first in range(0, len(wanted), QUERIES_AT_ONCE):
        rankings = {}
        for code in wanted[first : first + QUERIES_AT_ONCE]:
            rows = order[starts[code] : ends[code]]
            rankings[query_ids[code]] = _ranking(query_ids[code], passage_ids.take(pa.array(rows)), scores[rows])
        yield rankings


def _ranking(query_id: str, passage_ids: pa.Array, scores: NDArray[np.float32]) -> Ranking:
    if np.isnan(scores).any():
        raise DatasetError(f"The run has a score that is not a number for the query {query_id!r}: score it again.")
    ranking = dict(zip(passage_ids.to_pylist(), scores.tolist(), strict=True))
    if len(ranking) != len(scores):
        raise DatasetError(f"The run names a passage twice for the query {query_id!r}: keep one of them.")
    return ranking
