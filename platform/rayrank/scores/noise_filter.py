"""The noise filter: unjudged training candidates that the pointwise model scores as relevant leave the lists."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rayrank.core.errors import ConfigError
from rayrank.data.pair_set import Mask

Scores = NDArray[np.float32]


def removed(scores: Scores, relevant: Mask, threshold: float) -> Mask:
    """Return which candidates the filter removes: probability above the threshold, and not judged relevant."""
    if not 0 < threshold <= 1:
        raise ConfigError(f"noise.threshold={threshold} is no probability above 0: choose one up to 1.")
    # Compared as logits: probabilities near 1 round to 1. In float64, because float32 would round the threshold.
    return (scores > np.float64(special.logit(threshold))) & ~relevant


def probabilities(scores: Scores) -> NDArray[np.float64]:
    """Return the sigmoid of logits."""
    return special.expit(np.asarray(scores, np.float64))  # type: ignore[no-any-return]
