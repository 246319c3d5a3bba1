"""How sure a mean over queries is, and whether one run is better than another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Values = NDArray[np.float64]

# Resamples are drawn in blocks of so many numbers (32 MB as float64), whatever the number of queries.
BLOCK = 1 << 22


@dataclass(frozen=True)
class Interval:
    """A mean over queries and how far it might be off."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """A run minus its baseline: the mean difference, its interval, and how often chance alone does as much."""

    difference: float
    low: float
    high: float
    p_value: float


def mean_interval(values: Values, resamples: int, seed: int, level: float = 0.95) -> Interval:
    """Return the mean with its percentile bootstrap interval over queries."""
    values = np.asarray(values, dtype=np.float64)
    if not values.size:
        raise ValueError("an interval needs at least one query")
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    for block in _blocks(resamples, values.size):
        drawn = rng.integers(0, values.size, size=(block.stop - block.start, values.size), dtype=np.int32)
        means[block] = values[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(values.mean()), float(low), float(high))


def compare(
    values: Values,
    baseline_values: Values,
    test: Literal["randomisation", "t"],
    resamples: int,
    seed: int,
    level: float = 0.95,
) -> Comparison:
    """Compare two runs query by query, two-sided; runs without any difference have p = 1."""
    values, baseline_values = np.asarray(values, np.float64), np.asarray(baseline_values, np.float64)
    if values.shape != baseline_values.shape:
        raise ValueError(f"a comparison is paired: {values.size} queries against {baseline_values.size}")
    differences = values - baseline_values
    interval = mean_interval(differences, resamples, seed, level)
    p_value = _sign_flips(differences, resamples, seed) if test == "randomisation" else _paired_t(differences)
    return Comparison(interval.mean, interval.low, interval.high, p_value)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number (Holm, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, highest = [1.0] * len(p_values), 0.0
    for done, place in enumerate(order):
        # A larger p value never ends below a smaller one.
        highest = max(highest, min(1.0, (len(p_values) - done) * p_values[place]))
        corrected[place] = highest
    return corrected


def _sign_flips(differences: Values, resamples: int, seed: int) -> float:
    """Return the share of random swaps of the two runs that differ as much as observed, the observed one included."""
    differences = differences[differences != 0]  # a swap of equal values changes nothing
    if not differences.size:
        return 1.0
    rng = np.random.default_rng(seed)
    total = differences.sum()
    # Sums of the same numbers in another order differ by rounding; they still count as equal.
    observed = abs(total) - 1e-12 * np.abs(differences).sum()
    as_extreme = 0
    for block in _blocks(resamples, differences.size):
        size = (block.stop - block.start, -(-differences.size // 8))
        kept = np.unpackbits(rng.integers(0, 256, size, np.uint8), axis=1, count=differences.size)
        as_extreme += int(np.count_nonzero(np.abs(2 * (kept @ differences) - total) >= observed))
    return (as_extreme + 1) / (resamples + 1)


def _paired_t(differences: Values) -> float:
    if differences.size < 2 or not differences.any():
        return 1.0
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def _blocks(resamples: int, width: int) -> list[slice]:
    rows = max(1, BLOCK // width)
    return [slice(start, min(start + rows, resamples)) for start in range(0, resamples, rows)]
