"""How alike two orders of the same passages are."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


def best_first(scores: ArrayLike) -> NDArray[np.int64]:
    """Return places by score; equal scores stay in the order given."""
    return np.argsort(-np.asarray(scores, np.float64), kind="stable")


def rank_biased_overlap(one: ArrayLike, other: ArrayLike, persistence: float = 0.9) -> float:
    """Return how much two orders by score share, from 0 to 1, the top counting most (Webber et al., 2010).

    A reader goes on to the next rank with a chance of `persistence`; at 0.9 the first ten ranks weigh 86 %.
    """
    ranks = [np.argsort(best_first(scores)) for scores in (one, other)]
    # A passage is shared from the rank on at which the second of the two orders has it.
    deeper = np.maximum(*ranks)
    depth = np.arange(1, len(deeper) + 1)
    shared = np.cumsum(np.bincount(deeper, minlength=len(deeper))) / depth
    weights = (1 - persistence) * persistence ** (depth - 1)
    # Beyond the last rank both orders hold the same passages, all of them.
    return float(weights @ shared + persistence ** len(deeper))


def kendall_tau(one: ArrayLike, other: ArrayLike) -> float:
    """Return Kendall's tau-b of two orders by score, from -1 (reversed) to 1; where one says nothing it is 0."""
    if np.size(one) < 2:
        return 1.0
    tau = stats.kendalltau(one, other).statistic
    return 0.0 if np.isnan(tau) else float(tau)
