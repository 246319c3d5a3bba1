"""Thresholds by wanted precision: the score that a candidate needs, so that a known share of what passes is relevant.

The threshold that is stored is chosen on all dev queries. What it achieves is measured on other queries than it was
chosen on: dev is divided into two halves, and each half is measured at the threshold that the other half chose.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rayrank.core.errors import ConfigError
from rayrank.core.section import Section
from rayrank.scores.calibration import Curve

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

WANTED = (0.5, 0.8, 0.9, 0.95)
MIN_QUERIES = 20
"""Held-out queries that must keep a candidate: with fewer, the measured precision says little."""

Z_95 = 1.959964
"""The standard normal quantile of a two-sided interval of 95 %."""


class Level(Section):
    """One row of the table: a wanted precision, the threshold that gives it, and what was measured at it."""

    wanted: float
    logit: float | None = None
    """A candidate passes if its score is at least this; None if this precision cannot be given."""
    probability: float | None = None
    """The calibrated probability at that score."""
    num_queries: int = 0
    """Held-out queries that keep at least one candidate."""
    precision: float | None = None
    """The share of the held-out candidates above the threshold that are relevant, with its 95 % interval."""
    low: float | None = None
    high: float | None = None
    reason: str = ""
    """Why there is no threshold."""


class PrecisionTable(Section):
    """Thresholds for several precisions, measured on dev."""

    num_queries: int
    """Dev queries; each has a passage that is judged relevant."""
    levels: tuple[Level, ...]

    def threshold(self, wanted: float) -> float:
        """Return the lowest stored threshold with at least the wanted precision."""
        given = [(level.wanted, level.logit) for level in self.levels if level.logit is not None]
        for precision, logit in given:
            if precision >= wanted:
                return logit
        tried = ", ".join(f"{level.wanted:g}" for level in self.levels)
        reached = f"{given[-1][0]:g} at most; send less, or" if given else f"none of {tried}; send"
        raise ConfigError(
            f"min_precision={wanted:g} cannot be given by this model: on {self.num_queries:,} dev queries it reaches "
            f"{reached} min_relevance."
        )

    def finding(self) -> str:
        """Return the table as a sentence."""
        parts = [
            f"{level.wanted:g} from probability {level.probability:.3f} on ({level.num_queries:,} of "
            f"{self.num_queries:,} queries keep an answer, measured {level.precision:.3f}, 95 % interval "
            f"{level.low:.3f} to {level.high:.3f})"
            if level.logit is not None else f"{level.wanted:g} cannot be given: {level.reason}"
            for level in self.levels
        ]  # fmt: skip
        return "precision " + "; ".join(parts)


def precision_table(
    logits: ArrayLike, labels: ArrayLike, query_ids: ArrayLike, curve: Curve, wanted: Sequence[float] = WANTED
) -> PrecisionTable:
    """Return the table of scored and judged candidates; `curve` turns scores into probabilities."""
    scores, relevant = np.asarray(logits, np.float32).astype(np.float64), np.asarray(labels, np.bool_)
    names, of_query = np.unique(np.asarray(query_ids), return_inverse=True)
    levels = tuple(_level(each, scores, relevant, of_query, curve) for each in wanted)
    return PrecisionTable(num_queries=len(names), levels=levels)


def lowest_threshold(scores: Values, relevant: Flags, wanted: float) -> float | None:
    """Return the lowest threshold from which on at least the wanted share of candidates is relevant; None without one.

    It lies midway between two scores, so that a rounding error does not move a candidate across it.
    """
    distinct, index, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    share = np.cumsum(np.bincount(index, relevant)) / np.cumsum(counts)
    enough = np.flatnonzero(share >= wanted)
    if not enough.size:
        return None
    last = int(enough[-1])
    below = distinct[last + 1] if last + 1 < len(distinct) else distinct[last] + 2.0
    return -float(distinct[last] + below) / 2


def wilson(share: float, num_cases: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, which is honest for few cases and for shares of 0 and 1."""
    spread = Z_95**2 / num_cases
    centre = share + spread / 2
    half = math.sqrt(spread * (share * (1 - share) + spread / 4))
    return max(0.0, (centre - half) / (1 + spread)), min(1.0, (centre + half) / (1 + spread))


def _level(wanted: float, scores: Values, relevant: Flags, of_query: Ints, curve: Curve) -> Level:
    threshold = lowest_threshold(scores, relevant, wanted)
    if threshold is None:
        return Level(wanted=wanted, reason="no score is high enough for it on dev")
    first = of_query % 2 == 0
    passes = np.zeros(len(scores), np.bool_)
    for half in (first, ~first):
        chosen = lowest_threshold(scores[~half], relevant[~half], wanted)
        passes |= half & (scores >= (np.inf if chosen is None else chosen))
    num_queries = len(np.unique(of_query[passes]))
    if num_queries < MIN_QUERIES:
        reason = f"dev is too small: {num_queries} held-out queries keep an answer, and {MIN_QUERIES} are needed"
        return Level(wanted=wanted, num_queries=num_queries, reason=reason)
    precision = float(relevant[passes].mean())
    # The candidates of a query are not independent, so each query counts as one case.
    low, high = wilson(precision, num_queries)
    measured = Level(wanted=wanted, num_queries=num_queries, precision=precision, low=low, high=high)
    if high < wanted:
        reason = f"held-out queries reach only {precision:.3f}, with a 95 % interval up to {high:.3f}"
        return measured.model_copy(update={"reason": reason})
    probability = float(curve.apply([threshold])[0])
    return measured.model_copy(update={"logit": threshold, "probability": probability})
