"""Texts as word pieces in windows that an encoder can read, with the piece that each word begins with."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding

from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.terms import word_spans

ALL_PIECES = 1 << 20
"""Maximum number of word pieces read of a text, more than any passage has."""


class AlignedTexts(NamedTuple):
    """The pieces of several texts, split into windows, and their words as the texts spell them."""

    windows: Ragged
    """Consecutive windows; those of a text follow each other and hold all of its pieces."""
    of_text: Rows
    """The number of each window's text."""
    words: list[list[str]]
    """The words of each text. Words without a piece, made of characters that the tokenizer drops, are left out."""
    firsts: list[Rows]
    """For each text the first pieces of its words, as positions in `windows.values`."""


def align(texts: Sequence[str], encoder: PieceEncoder, max_pieces: int) -> AlignedTexts:
    """Return texts in windows of at most `max_pieces` pieces; only a word longer than a window is split."""
    ids: list[list[int]] = []
    bounds, of_text, words, firsts = [0], [], [], []
    for number, (text, encoding) in enumerate(zip(texts, encoder.batch_with_offsets(texts), strict=True)):
        found, first = _words_and_pieces(text, encoding)
        begin = bounds[-1]
        ends = _window_ends(first, len(encoding), max_pieces)
        bounds += [begin + end for end in ends]
        of_text += [number] * len(ends)
        words.append(found)
        firsts.append(begin + first)
        ids.append(encoding.ids)
    values = np.concatenate([np.asarray(row, np.int32) for row in ids] or [np.empty(0, np.int32)])
    return AlignedTexts(Ragged(values, np.array(bounds, np.int64)), np.array(of_text, np.int64), words, firsts)


def _words_and_pieces(text: str, encoding: Encoding) -> tuple[list[str], Rows]:
    """Return the words of a text, and the number of the piece that each begins with."""
    spans = np.array(word_spans(text), np.int64).reshape(-1, 2)
    pieces = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    # The first piece that ends after the word's beginning.
    firsts = np.searchsorted(pieces[:, 1], spans[:, 0], side="right")
    has_piece = np.append(pieces[:, 0], len(text))[firsts] < spans[:, 1]
    return [text[start:stop] for start, stop in spans[has_piece].tolist()], firsts[has_piece]


def _window_ends(firsts: Rows, num_pieces: int, max_pieces: int) -> list[int]:
    """Return where each window ends: before the first word that does not fit whole, or at the text's end."""
    ends: list[int] = []
    begin = 0
    while num_pieces - begin > max_pieces:
        word = int(np.searchsorted(firsts, begin + max_pieces, side="right")) - 1
        # A word that is longer than a window is split.
        begin = int(firsts[word]) if word >= 0 and firsts[word] > begin else begin + max_pieces
        ends.append(begin)
    return [*ends, num_pieces] if num_pieces else []
