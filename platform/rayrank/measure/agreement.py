"""How similar two rankings of the same passages are."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats


def best_first(scores: ArrayLike) -> NDArray[np.int64]:
    """Return the indices that sort scores, best first; ties stay in the order given."""
    return np.argsort(-np.asarray(scores, np.float64), kind="stable")


def rank_biased_overlap(one: ArrayLike, other: ArrayLike, persistence: float = 0.9) -> float:
    """Return the rank-biased overlap of two rankings by score, from 0 to 1 (Webber et al., 2010).

    A reader goes on to the next rank with probability `persistence`; at 0.9 the first ten ranks weigh 86 %.
    """
    ranks = [np.argsort(best_first(scores)) for scores in (one, other)]
    # Both rankings contain a passage from the larger of its two ranks on.
    shared_from = np.maximum(*ranks)
    depth = np.arange(1, len(shared_from) + 1)
    overlap = np.cumsum(np.bincount(shared_from, minlength=len(shared_from))) / depth
    weights = (1 - persistence) * persistence ** (depth - 1)
    # Beyond the last rank the overlap is 1: both rankings then contain every passage.
    return float(weights @ overlap + persistence ** len(shared_from))


def kendall_tau(one: ArrayLike, other: ArrayLike) -> float:
    """Return Kendall's tau-b of two rankings by score, from -1 (reversed) to 1; 0 if one of them ties all passages."""
    if np.size(one) < 2:
        return 1.0
    tau = stats.kendalltau(one, other).statistic
    return 0.0 if np.isnan(tau) else float(tau)
