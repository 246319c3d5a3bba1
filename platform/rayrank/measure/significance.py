"""Confidence intervals of means over queries, and paired tests of one run against another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]

BATCH_VALUES = 1 << 21
"""Values resampled at a time, 16 MB as float64: memory does not grow with the number of queries or resamples."""


@dataclass(frozen=True)
class Interval:
    """A mean over queries with its confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A run minus its baseline: the mean difference, its confidence interval, and the p value of a paired test."""

    difference: float
    low: float
    high: float
    p_value: float


def mean_interval(values: Values, resamples: int, seed: int, level: float = 0.95) -> Interval:
    """Return the mean with its percentile bootstrap interval over queries."""
    values = np.asarray(values, dtype=np.float64)
    if not values.size:
        raise ValueError("an interval needs at least one query")
    mean = float(values.mean())
    if values.size == 1:  # which SciPy refuses to resample
        return Interval(mean, mean, mean)
    low, high = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=resamples,
        batch=_batch(values.size),
        vectorized=True,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean, float(low), float(high))


def compare(
    values: Values,
    baseline_values: Values,
    test: Literal["randomisation", "t"],
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> Comparison:
    """Compare two runs query by query, two-sided; p is 1 for runs that do not differ on any query."""
    values, baseline_values = np.asarray(values, np.float64), np.asarray(baseline_values, np.float64)
    if values.shape != baseline_values.shape:
        raise ValueError(f"a comparison is paired: {values.size} queries against {baseline_values.size}")
    differences = values - baseline_values
    interval = mean_interval(differences, resamples, seed, level)
    p_value = _randomisation(differences, resamples, seed) if test == "randomisation" else _paired_t(differences)
    return Comparison(interval.mean, interval.low, interval.high, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for multiple comparisons (Holm, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    corrected, highest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        # The maximum keeps the correction monotone: a larger p value never ends below a smaller one.
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = highest
    return corrected


def _randomisation(differences: Values, resamples: int, seed: int) -> float:
    """Return the p value of Fisher's paired randomisation test, in which each query's runs swap with probability 1/2.

    SciPy's `permutation_test` makes the same swaps through indices and takes 20 to 80 times as long; random bits and
    one matrix product per batch give `monte_carlo_test` the same null distribution.
    """
    differences = differences[differences != 0]  # swapping equal values changes nothing
    if not differences.size:
        return 1.0
    rng = np.random.default_rng(seed)

    def swaps(size: tuple[int, int]) -> NDArray[np.uint8]:
        draws, queries = size
        return np.unpackbits(rng.integers(0, 256, (draws, -(-queries // 8)), np.uint8), axis=1, count=queries)

    # Sums of the same numbers in another order differ by rounding errors; whole multiples of this unit do not.
    total, unit = differences.sum(), np.abs(differences).sum() * 2.0**-40

    def difference(kept: NDArray[Any], axis: int) -> Values:
        rounded: Values = np.rint(np.abs(2 * (kept @ differences) - total) / unit)
        return rounded

    observed = np.ones(differences.size)
    found = stats.monte_carlo_test(
        observed,
        swaps,
        difference,
        vectorized=True,
        n_resamples=resamples,
        batch=_batch(differences.size),
        alternative="greater",
    )
    return float(found.pvalue)


def _paired_t(differences: Values) -> float:
    if differences.size < 2 or not differences.any():
        return 1.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _batch(num_queries: int) -> int:
    """Return how many resamples of the queries fit into one batch."""
    return max(1, BATCH_VALUES // num_queries)
