"""Long passages as overlapping windows, each short enough for an input of the encoder."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rayrank.core.config import InputConfig
from rayrank.text.ragged import Ids, Rows, Windows
from rayrank.text.words import ALONE, CONTINUES


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
        planned, inside = starts.copy(), np.flatnonzero(starts > begins)
        while len(inside := inside[_continues(passages.values, starts[inside], words)]):
            starts[inside] += 1
            inside = inside[starts[inside] < stops[inside]]
        # A word that is longer than a window is cut inside.
        starts = np.where(starts < stops, starts, planned)
        return cls(Windows(passages.values, starts, stops), first)

    def of_passages(self, passage_rows: Rows) -> tuple[Rows, Rows]:
        """Return the rows of all windows of some passages, and how many windows each of the passages has."""
        counts = self.first[passage_rows + 1] - self.first[passage_rows]
        before = np.cumsum(counts) - counts
        return np.arange(counts.sum()) + np.repeat(self.first[passage_rows] - before, counts), counts


def _continues(ids: Ids, places: Rows, words: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return whether the ids at some places, none of them the first, continue the word before."""
    found: NDArray[np.bool_] = (words[ids[places]] == CONTINUES) & (words[ids[places - 1]] != ALONE)
    return found
