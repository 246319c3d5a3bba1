"""One score of a passage from the scores of its windows."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Aggregation = Literal["max", "first", "mean"]

Scores = NDArray[np.float32]
Counts = NDArray[np.int64]
"""How many windows each passage has, at least one; the windows of a passage follow those of the passage before."""


def aggregate(scores: Scores, counts: Counts, how: Aggregation = "max") -> Scores:
    """Return the highest, the first or the mean score of each passage's windows."""
    begins = np.cumsum(counts) - counts
    found: Scores
    if how == "first" or not len(counts):
        found = scores[begins]
    elif how == "max":
        found = np.maximum.reduceat(scores, begins)
    else:
        found = (np.add.reduceat(scores.astype(np.float64), begins) / counts).astype(np.float32)
    return found


def best_window(scores: Scores, counts: Counts) -> Counts:
    """Return the place in `scores` of each passage's best window, of equal ones the first."""
    order, begins = _best_first(scores, counts)
    found: Counts = order[begins]
    return found


def best_windows(scores: Scores, counts: Counts, number: int) -> Scores:
    """Return the highest scores of each passage, descending: (passages, number).

    A passage with fewer windows repeats its lowest score: with weights that add up to 1, it is not at a disadvantage.
    """
    order, begins = _best_first(scores, counts)
    found: Scores = scores[order[begins[:, None] + np.minimum(np.arange(number), counts[:, None] - 1)]]
    return found


def _best_first(scores: Scores, counts: Counts) -> tuple[Counts, Counts]:
    """Return the places of all windows, the best of each passage first, and where each passage begins among them."""
    passage = np.repeat(np.arange(len(counts)), counts)
    return np.lexsort((-scores, passage)), np.cumsum(counts) - counts
