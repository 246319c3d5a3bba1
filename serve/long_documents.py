"""Documents that are longer than the model's input: cut, or read in windows, of which the best counts."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from rayrank.bundle.export import Bundle
from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ids, Ragged
from rayrank.text.windows import PassageWindows
from rayrank.text.words import word_table


class Parts(NamedTuple):
    """What is scored of the documents of a request: whole documents, or windows of the long ones."""

    pieces: list[Ids]
    """One document after another."""
    counts: list[int]
    """The number of parts of each document."""
    starts: list[int]
    """The piece of its document at which each part begins."""
    cut: list[int]
    """Positions of documents whose ends are in no window; empty if documents are not read in windows."""

    def expand(self, places: Sequence[int]) -> list[int]:
        """Return the parts of documents, in the order of these documents."""
        ends = np.cumsum(self.counts).tolist()
        return [part for place in places for part in range(ends[place] - self.counts[place], ends[place])]

    def best(self, scores: Sequence[float | None]) -> list[int | None]:
        """Return each document's part with the highest score; None if none of its parts has a score."""
        found: list[int | None] = []
        begin = 0
        for count in self.counts:
            scored = [part for part in range(begin, begin + count) if scores[part] is not None]
            found.append(max(scored, key=lambda part: scores[part] or 0.0, default=None))
            begin += count
        return found


class LongDocuments:
    """Tokenises documents as far as they are read, and divides long ones into windows if the model reads them so."""

    def __init__(self, exported: Bundle, how: Literal["cut", "windows"] | None) -> None:
        """Read documents as `how` says, or as in training if it is None."""
        inputs = exported.settings.input
        self._inputs = inputs.model_copy(update={"long_passages": how or inputs.long_passages})
        self.in_windows = self._inputs.long_passages == "windows"
        self._words = word_table(exported.tokenizer)
        # One piece more than the windows reach, to notice a document that is longer.
        max_pieces = self._inputs.pieces_read() + self.in_windows
        self.encode = PieceEncoder(exported.tokenizer.backend_tokenizer.to_str(), max_pieces)

    def parts(self, documents: list[Ids]) -> Parts:
        """Return the parts of tokenised documents."""
        if not self.in_windows:
            return Parts(documents, [1] * len(documents), [0] * len(documents), [])
        rows = Ragged.of(documents)
        found = PassageWindows.of(rows, self._inputs, self._words)
        counts = np.diff(found.first)
        return Parts(
            [found.windows[row] for row in range(len(found.windows))],
            counts.tolist(),
            (found.windows.starts - np.repeat(rows.starts, counts)).tolist(),
            np.flatnonzero(rows.lengths() > self._inputs.pieces_read()).tolist(),
        )

    def spans(self, texts: Sequence[str], parts: Parts, windows: Sequence[int]) -> list[tuple[int, int]]:
        """Return the characters from the first to after the last of one window, a part, of each text."""
        found = []
        for encoding, window in zip(self.encode.batch_with_offsets(texts), windows, strict=True):
            start, size = parts.starts[window], len(parts.pieces[window])
            found.append((encoding.offsets[start][0], encoding.offsets[start + size - 1][1]))
        return found
