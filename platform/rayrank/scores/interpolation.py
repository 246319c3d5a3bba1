"""Linear interpolation of a model's scores with the first stage's, whose exact word matches a small model can miss."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core.records import CANDIDATES
from rayrank.data.rows import by_query
from rayrank.measure.metrics import JudgedRows, Measure, parse

WEIGHTS = tuple(step / 20 for step in range(21))
"""Weights of the first stage to choose from; a few thousand queries cannot distinguish finer steps."""

Values = NDArray[np.float64]


def interpolate(model: Values, first: Values, weight: float) -> Values:
    """Return one query's scores, both sides min-max normalised, with `weight` for the first stage's."""
    one_query = np.zeros(len(model), np.int64)
    return (1 - weight) * _min_max(model, one_query) + weight * _min_max(first, one_query)


@dataclass(frozen=True)
class WeightSearch:
    """The metric of every judged query, in the order of `query_ids`, at each of WEIGHTS."""

    query_ids: list[str]
    values: Values
    """(weights, queries)"""

    def best(self, queries: slice = slice(None)) -> float:
        """Return the weight with the highest mean over some of the queries; of ties the lowest."""
        return WEIGHTS[int(self.values[:, queries].sum(axis=1).argmax())]

    def cross_fitted(self) -> dict[str, float]:
        """Return for each query the weight that is best for the half of the queries it is not in."""
        halves = [self.best(slice(start, None, 2)) for start in (1, 0)]
        return {query_id: halves[index % 2] for index, query_id in enumerate(self.query_ids)}

    def curve(self) -> dict[float, float]:
        """Return the mean at each weight."""
        return dict(zip(WEIGHTS, self.values.mean(axis=1).tolist(), strict=True))


class Interpolation:
    """A model's run and the first stage's, with the same pairs row by row, to be interpolated with any weight."""

    def __init__(self, model: pa.Table, first: pa.Table) -> None:
        self._run = model
        self._queries, self._of_query = by_query(model)
        self._model, self._first = (_min_max(table["score"].to_numpy(), self._of_query) for table in (model, first))

    def run(self, weight: float, query_weights: Mapping[str, float] | None = None) -> pa.Table:
        """Return the model's run with interpolated scores; `query_weights` replaces the weight of single queries."""
        weights = np.array([(query_weights or {}).get(query_id, weight) for query_id in self._queries])
        scores = pa.array(self._scores(weights[self._of_query]), pa.float32())
        return self._run.set_column(3, CANDIDATES.field("score"), scores).replace_schema_metadata(None)

    def search(self, qrels: pa.Table, measure: Measure) -> WeightSearch:
        """Measure the run at each weight."""
        rows, metric = JudgedRows(qrels, self._run, measure.relevant_from), {measure.name: parse(measure.name)}
        found = [rows.measure(self._scores(weight), metric) for weight in WEIGHTS]
        return WeightSearch(found[0].query_ids, np.stack([each.values[measure.name] for each in found]))

    def _scores(self, weight: float | Values) -> NDArray[np.float32]:
        return ((1 - weight) * self._model + weight * self._first).astype(np.float32)


def _min_max(values: NDArray[np.floating], groups: NDArray[np.int64]) -> Values:
    """Return values scaled to 0-1 within each group, all 0 in a group of equal values."""
    number = int(groups.max(initial=-1)) + 1
    # Divided by the largest magnitude first: the difference of two huge floats may overflow.
    largest = np.ones(number)
    np.maximum.at(largest, groups, np.abs(values))
    small: Values = values / largest[groups]
    lows, highs = np.full(number, np.inf), np.full(number, -np.inf)
    np.minimum.at(lows, groups, small)
    np.maximum.at(highs, groups, small)
    width = highs - lows
    width[width == 0] = 1.0
    found: Values = (small - lows[groups]) / width[groups]
    return found
