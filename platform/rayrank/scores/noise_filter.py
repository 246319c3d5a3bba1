"""The noise filter: which training candidates a model finds relevant although nobody judged them."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from rayrank.core.errors import ConfigError
from rayrank.data.pair_set import Mask

Scores = NDArray[np.float32]


def removed(scores: Scores, relevant: Mask, threshold: float) -> Mask:
    """Return what the filter removes: a probability above the threshold, and nobody judged it relevant."""
    if not 0 < threshold <= 1:
        raise ConfigError(f"noise.threshold={threshold} is no probability above 0: choose one up to 1.")
    # Logits tell pairs apart whose probabilities both round to 1; float64 lest the limit be rounded to float32.
    return (scores > np.float64(special.logit(threshold))) & ~relevant


def probabilities(scores: Scores) -> NDArray[np.float64]:
    """Return the sigmoid of logit differences."""
    return special.expit(np.asarray(scores, np.float64))  # type: ignore[no-any-return]
