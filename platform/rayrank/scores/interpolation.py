"""Linear interpolation of several runs' scores: what one run misses, such as exact word matches, another may find."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.measure.metrics import JudgedRows, Measure, parse
from rayrank.scores.union import Ints, Scores, Union, Values

WEIGHTS = tuple(step / 20 for step in range(21))
"""The weights of a run to choose from; a few thousand queries cannot distinguish finer steps."""

Weights = tuple[float, ...]
"""One weight per run; they add up to 1."""
Fit = TypeVar("Fit")
Normalization = Literal["min-max", "z-score", "rank"]


def cross_fitted(query_ids: Sequence[str], fit: Callable[[slice], Fit]) -> dict[str, Fit]:
    """Return for each query what is fitted to the half of the queries it is not in: every second one."""
    halves = [fit(slice(start, None, 2)) for start in (1, 0)]
    return {query_id: halves[index % 2] for index, query_id in enumerate(query_ids)}


def interpolate(model: Values, first: Values, weight: float) -> Values:
    """Return `(1 - weight) * model + weight * first` for one query, after min-max normalising both."""
    one_query = np.zeros(len(model), np.int64)
    return (1 - weight) * _min_max(model, one_query) + weight * _min_max(first, one_query)


class WeightSearch:
    """Finds the best weights on judged queries; each set of weights that is tried is measured once.

    This is coordinate search: each run in turn gets the best weight of WEIGHTS, while the others share the rest in
    their previous proportions. Rounds are repeated until the weights no longer change. For two runs this tries every
    weight.
    """

    def __init__(self, query_ids: list[str], num_runs: int, measure: Callable[[Weights], Values]) -> None:
        """Take the judged queries, and a function from weights to the metric of each of these queries."""
        self.query_ids, self._num_runs, self._measure = query_ids, num_runs, measure
        self._known: dict[Weights, Values] = {}

    def values(self, weights: Weights) -> Values:
        """Return the metric of every judged query."""
        if weights not in self._known:
            self._known[weights] = self._measure(weights)
        return self._known[weights]

    def mean(self, weights: Weights) -> float:
        """Return the mean over all judged queries."""
        return float(self.values(weights).mean())

    def alone(self, run: int) -> Weights:
        """Return all weight for one run."""
        return tuple(float(each == run) for each in range(self._num_runs))

    def best(self, among: Sequence[int] | None = None, queries: slice = slice(None)) -> Weights:
        """Return the weights with the highest mean over some of the queries.

        Runs outside `among` get weight 0. If several weights are equally good, the lowest weight for the later run
        wins.
        """
        among = range(self._num_runs) if among is None else among
        found = self.alone(among[0])
        last: Weights = ()
        while found != last and len(among) > 1:
            last = found
            for run in [*among[1:], among[0]]:
                tried = [found, *(_with_weight(found, run, weight, among) for weight in WEIGHTS)]
                found = tried[int(np.argmax([self.values(each)[queries].sum() for each in tried]))]
        return found

    def cross_fitted(self, among: Sequence[int] | None = None) -> dict[str, Weights]:
        """Return for each query the weights that are best for the half of the queries it is not in."""
        return cross_fitted(self.query_ids, lambda half: self.best(among, half))

    def curve(self) -> dict[float, float]:
        """Return the mean at each weight of the second of two runs."""
        return {weight: self.mean(_with_weight(self.alone(0), 1, weight, (0, 1))) for weight in WEIGHTS}


class Interpolation:
    """The union of several runs' candidates, normalised in each query, to be interpolated with any weights."""

    def __init__(self, runs: Sequence[pa.Table], normalize: Normalization = "min-max") -> None:
        self._union, self._num_runs = Union.of(runs), len(runs)
        self._values = [normalised(self._union, run, normalize) for run in range(len(runs))]

    def run(
        self, weights: Weights, query_weights: Mapping[str, Weights] | None = None, depth: int | None = None,
        best_first: bool = False,
    ) -> pa.Table:  # fmt: skip
        """Return the interpolated run; `query_weights` replaces the weights of single queries.

        Equal scores are ordered by their rank in the run of the largest weight.
        """
        leading = sorted(range(self._num_runs), key=lambda run: -weights[run])
        if not query_weights:
            return self._union.table(self._scores(weights), leading, depth, best_first)
        own = [query_weights.get(query_id, weights) for query_id in self._union.query_ids]
        of_row = np.array(own, np.float64).reshape(-1, self._num_runs)[self._union.of_query]
        return self._union.table(self._scores(of_row.T), leading, depth, best_first)

    def search(self, qrels: pa.Table, measure: Measure) -> WeightSearch:
        """Return the search for the weights that are best by a measure."""
        rows, metric = JudgedRows(qrels, self._union.pairs, measure.relevant_from), {measure.name: parse(measure.name)}

        def measured(weights: Weights) -> Values:
            return rows.measure(self._scores(weights), metric).values[measure.name]

        return WeightSearch(rows.query_ids, self._num_runs, measured)

    def _scores(self, weights: Sequence[float] | Values) -> Scores:
        total = np.zeros(len(self._union.of_query))
        for weight, values in zip(weights, self._values, strict=True):
            total += weight * values
        return total.astype(np.float32)


def _with_weight(weights: Weights, run: int, weight: float, among: Sequence[int]) -> Weights:
    """Return weights with another weight of one run; the others share the rest as before, equally if they had none."""
    others = [each for each in among if each != run]
    total = sum(weights[each] for each in others)
    rest = {each: weights[each] / total if total else 1 / len(others) for each in others}
    # Rounded, so that the same weights reached in two ways are measured once.
    return tuple(
        round(weight if each == run else (1 - weight) * rest.get(each, 0.0), 9) for each in range(len(weights))
    )


def normalised(union: Union, run: int, how: Normalization) -> Values:
    """Return a run's normalised scores of all rows.

    A passage that it does not have gets the lowest normalised value: 0, or the run's lowest z-score in that query.
    """
    rows = union.present(run)
    groups, scores = union.of_query[rows], union.scores[run, rows]
    found = np.zeros(len(union.of_query))
    if how == "z-score":
        values = _z_scores(scores, groups)
        lowest = np.zeros(len(union.query_ids))
        np.minimum.at(lowest, groups, values)
        found = lowest[union.of_query]
    elif how == "rank":
        values = _min_max(-union.positions(run).astype(np.float64), groups)
    else:
        values = _min_max(scores, groups)
    found[rows] = values
    return found


def _min_max(values: NDArray[np.floating], groups: Ints) -> Values:
    """Return values scaled to 0-1 within each group.

    Equal values are all 1: a passage that a run found counts more than one that it did not find, which has 0.
    """
    small, lows, highs = _small(values, groups)
    width = highs - lows
    lows[width == 0] -= 1.0
    width[width == 0] = 1.0
    found: Values = (small - lows[groups]) / width[groups]
    return found


def _z_scores(values: NDArray[np.floating], groups: Ints) -> Values:
    """Return values minus their group's mean, divided by its standard deviation; all 0 in a group of equal values."""
    small, lows, highs = _small(values, groups)
    counts = np.maximum(np.bincount(groups, minlength=len(lows)), 1)
    centred: Values = small - (np.bincount(groups, small, len(lows)) / counts)[groups]
    deviation = np.sqrt(np.bincount(groups, centred**2, len(lows)) / counts)
    # Rounding may leave a deviation where all values are equal.
    equal = (lows == highs) | (deviation == 0)
    deviation[equal] = 1.0
    found: Values = np.where(equal[groups], 0.0, centred / deviation[groups])
    return found


def _small(values: NDArray[np.floating], groups: Ints) -> tuple[Values, Values, Values]:
    """Return values divided by the largest magnitude of their group, and the lowest and highest of each group.

    The difference of two huge floats may overflow.
    """
    number = int(groups.max(initial=-1)) + 1
    largest, lows, highs = np.ones(number), np.full(number, np.inf), np.full(number, -np.inf)
    np.maximum.at(largest, groups, np.abs(values))
    small: Values = values / largest[groups]
    np.minimum.at(lows, groups, small)
    np.maximum.at(highs, groups, small)
    return small, lows, highs
