"""The noise filter: it removes training candidates that nobody judged and that the pointwise model finds relevant."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rayrank.core.errors import ConfigError
from rayrank.data.pair_set import Mask

Scores = NDArray[np.float32]


def removed(scores: Scores, judged: Mask, threshold: float) -> Mask:
    """Return which candidates the filter removes: unjudged ones whose probability is above the threshold.

    A judged candidate always stays: if a person found it irrelevant, it is a negative that the model has to learn.
    """
    if not 0 < threshold <= 1:
        raise ConfigError(f"noise.threshold={threshold} cannot be used: choose a number above 0 and at most 1.")
    # Logits are compared, not probabilities, because two different logits may both round to probability 1. The limit is
    # float64 so that it is not rounded to float32.
    return (scores > np.float64(special.logit(threshold))) & ~judged


def near_positives(scores: Scores, best: NDArray[np.floating], judged: Mask, margin: float) -> Mask:
    """Return which candidates score too close to a positive: unjudged ones at most a margin below it, or above it.

    `best` has for each candidate the score of its query's best positive, infinite if no positive was scored; then no
    candidate of the query is too close.
    """
    return (scores >= best - np.float64(margin)) & ~judged


def probabilities(scores: Scores) -> NDArray[np.float64]:
    """Return the sigmoid of logits."""
    return special.expit(np.asarray(scores, np.float64))  # type: ignore[no-any-return]
