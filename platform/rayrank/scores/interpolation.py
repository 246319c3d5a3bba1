"""The first stage's scores beside a model's: it counts matches of words that a small model overlooks."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core.records import CANDIDATES
from rayrank.data.rows import by_query
from rayrank.measure.metrics import METRICS, JudgedRows

METRIC = "MRR@10"
WEIGHTS = tuple(step / 20 for step in range(21))
"""Those that are tried; between two of them nothing happens that a few thousand queries could tell."""

Values = NDArray[np.float64]


def blend(model: Values, first: Values, weight: float) -> Values:
    """Return both scores of one query's passages as one, brought to 0-1 and weighed."""
    nothing = np.zeros(len(model), np.int64)
    return (1 - weight) * _unit(model, nothing) + weight * _unit(first, nothing)


@dataclass(frozen=True)
class Tried:
    """MRR@10 of judged queries, in the order of `query_ids`, at each weight."""

    query_ids: list[str]
    values: Values
    """(weights, queries)"""

    def best(self, some: slice = slice(None)) -> float:
        """Return the weight that is best for some of the queries; of equals the least."""
        return WEIGHTS[int(self.values[:, some].sum(axis=1).argmax())]

    def crossed(self) -> dict[str, float]:
        """Return for each query the weight that is best for the half it is not in: no figure is flattered."""
        halves = [self.best(slice(start, None, 2)) for start in (1, 0)]
        return {query_id: halves[place % 2] for place, query_id in enumerate(self.query_ids)}

    def curve(self) -> dict[float, float]:
        """Return the mean at each weight."""
        return dict(zip(WEIGHTS, self.values.mean(axis=1).tolist(), strict=True))


class Blend:
    """A model's run and the first stage's, row by row the same pairs, to be blended with one weight or another."""

    def __init__(self, model: pa.Table, first: pa.Table) -> None:
        self._run = model
        self._queries, self._of_query = by_query(model)
        self._model, self._first = (_unit(table["score"].to_numpy(), self._of_query) for table in (model, first))

    def run(self, weight: float, own: Mapping[str, float] | None = None) -> pa.Table:
        """Return the model's run with blended scores; some queries may have a weight of their own."""
        weights = np.array([(own or {}).get(query_id, weight) for query_id in self._queries])
        scores = pa.array(self._scores(weights[self._of_query]), pa.float32())
        return self._run.set_column(3, CANDIDATES.field("score"), scores).replace_schema_metadata(None)

    def tried(self, qrels: pa.Table) -> Tried:
        """Return what each weight gives."""
        rows, metric = JudgedRows(qrels, self._run), {METRIC: METRICS[METRIC]}
        found = [rows.measure(self._scores(weight), metric) for weight in WEIGHTS]
        return Tried(found[0].query_ids, np.stack([each.values[METRIC] for each in found]))

    def _scores(self, weight: float | Values) -> NDArray[np.float32]:
        return ((1 - weight) * self._model + weight * self._first).astype(np.float32)


def _unit(values: NDArray[np.floating], groups: NDArray[np.int64]) -> Values:
    """Return values brought to 0-1 within each group, all 0 if they are the same."""
    number = int(groups.max(initial=-1)) + 1
    # First to numbers whose difference is one, too.
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
