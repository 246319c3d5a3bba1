"""Scores of passages that are read in windows."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rayrank.scores.window_scores import aggregate
from rayrank.text.ragged import Rows
from rayrank.text.windows import PassageWindows

PairScores = Callable[[Rows, Rows], NDArray[np.float32]]
"""A function from query rows and passage rows to the score of each pair."""


class WindowScorer:
    """Gives a passage the score of its best window."""

    def __init__(self, score: PairScores, windows: PassageWindows) -> None:
        """Take a function that scores pairs of query rows and window rows."""
        self._score, self._windows = score, windows

    def __call__(self, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        """Return the score of each (query row, passage row)."""
        return aggregate(*self.of_windows(query_rows, passage_rows))

    def of_windows(self, query_rows: Rows, passage_rows: Rows) -> tuple[NDArray[np.float32], Rows]:
        """Return the scores of all windows of each pair's passage, and how many windows each has."""
        rows, counts = self._windows.of_passages(passage_rows)
        return self._score(np.repeat(query_rows, counts), rows), counts
