"""Long passages as overlapping windows, each short enough for an input of the encoder."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rayrank.core.config import InputConfig
from rayrank.text.ragged import Rows, Windows
from rayrank.text.words import CONTINUES


@dataclass(frozen=True)
class PassageWindows:
    """The windows of many passages, over the same array of ids."""

    windows: Windows
    """All windows, those of one passage after those of the passage before."""
    first: Rows
    """The row of each passage's first window, and the number of all windows."""

    @classmethod
    def of(cls, passages: Windows, inputs: InputConfig, words: NDArray[np.int8]) -> "PassageWindows":
        """Cut passages into windows; `words` says which ids begin a word (`word_table`).

        The last window of a passage ends where the passage ends, and may overlap more than the others. A window that
        would begin inside a word begins at the next word.
        """
        length, stride = inputs.pieces_of_window(), inputs.stride()
        counts = np.clip(-(-(passages.lengths() - length) // stride) + 1, 1, inputs.max_windows)
        first = np.concatenate([[0], np.cumsum(counts)])
        passage = np.repeat(np.arange(len(passages)), counts)
        number = np.arange(first[-1]) - first[passage]
        begins, ends = passages.starts[passage], passages.stops[passage]
        starts = np.maximum(np.minimum(begins + number * stride, ends - length), begins)
        stops = np.minimum(starts + length, ends)
        inside = np.flatnonzero(starts > begins)
        while len(inside := inside[words[passages.values[starts[inside]]] == CONTINUES]):
            starts[inside] += 1
            inside = inside[starts[inside] < stops[inside]]
        return cls(Windows(passages.values, starts, stops), first)

    def of_passages(self, passage_rows: Rows) -> tuple[Rows, Rows]:
        """Return the rows of all windows of some passages, and how many windows each of the passages has."""
        counts = self.first[passage_rows + 1] - self.first[passage_rows]
        before = np.cumsum(counts) - counts
        return np.arange(counts.sum()) + np.repeat(self.first[passage_rows] - before, counts), counts
