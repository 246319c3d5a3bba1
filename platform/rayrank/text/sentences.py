"""Finds where sentences begin in stored piece ids, from the role of each piece in the vocabulary and its neighbours."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rayrank.text.ragged import Ragged, Rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

ENDS, CLOSES, POINT, DIGIT_LAST, DIGIT_FIRST = 1, 2, 4, 8, 16
"""Roles of a piece, as bits: it ends a sentence; it is a closing quotation mark or bracket; it is a full stop, which
may be a decimal point; its last character is a digit; its first character is a digit."""

MIN_PIECES = 4
"""Shorter sentences (initials, abbreviations, numbers of a list) are joined to a neighbour."""

BLOCK = 1 << 24
"""Pieces processed at a time, so that temporary arrays stay within some 100 MB for a corpus of any size."""

_MARKS = frozenset("。！？｡।॥؟۔።፧։။។៕")
"""Sentence ends of other scripts: Chinese and Japanese, Indic, Arabic, Ethiopic, Armenian, Burmese and Khmer."""
_ENDS = frozenset(".!?…．") | _MARKS
_CLOSES = frozenset("\"'”’»›)]}」』）］｝】〉》")


@dataclass(frozen=True)
class Sentences:
    """The sentences of many passages: those of passage i are range(offsets[i], offsets[i + 1])."""

    bounds: Rows
    """Sentence j is values[bounds[j]:bounds[j + 1]] of the passages; each passage begins a sentence."""
    offsets: Rows

    @property
    def counts(self) -> Rows:
        """Return how many sentences each passage has."""
        return np.diff(self.offsets)


def sentence_table(tokenizer: "PreTrainedTokenizerFast") -> NDArray[np.uint8]:
    """Return the roles of every id of the vocabulary."""
    backend = tokenizer.backend_tokenizer
    pieces = [backend.id_to_token(row) or "" for row in range(len(tokenizer))]
    # Byte-level vocabularies write characters such as 。 in other letters; the decoder restores them.
    texts = [backend.decoder.decode([piece]) for piece in pieces] if backend.decoder is not None else pieces
    table = np.array([_role(piece, text) for piece, text in zip(pieces, texts, strict=True)], dtype=np.uint8)
    table[tokenizer.all_special_ids] = 0
    return table


def _role(piece: str, text: str) -> int:
    characters = text.strip().removeprefix("##").removeprefix("▁")
    if not characters:
        return 0
    if set(characters) <= _CLOSES:
        return CLOSES
    if set(characters) <= _ENDS | _CLOSES:
        return ENDS | (POINT if characters == "." else 0)
    # Vocabularies of scripts without spaces have pieces such as `です。`; a piece such as `Mr.` ends no sentence.
    if characters.rstrip("".join(_CLOSES))[-1:] in _MARKS:
        return ENDS
    # Digits after a space begin a new number; vocabularies with ## do not mark spaces.
    apart = piece.startswith(("Ġ", "▁"))
    return DIGIT_LAST * characters[-1].isdigit() | DIGIT_FIRST * (characters[0].isdigit() and not apart)


def split_sentences(passages: Ragged, table: NDArray[np.uint8]) -> Sentences:
    """Return the sentences of every passage; a passage without sentence ends is one sentence, an empty one has none."""
    starts, counts = [np.empty(0, np.int64)], [np.zeros(1, np.int64)]
    for first, last in _blocks(passages.offsets):
        offsets = passages.offsets[first : last + 1]
        found = _starts(table[passages.values[offsets[0] : offsets[-1]]], offsets - offsets[0])
        counts.append(np.diff(np.searchsorted(found, offsets - offsets[0])))
        starts.append(found + offsets[0])
    bounds = np.concatenate([*starts, passages.offsets[-1:]])
    return Sentences(bounds, np.cumsum(np.concatenate(counts)))


def _blocks(offsets: Rows) -> Iterator[tuple[int, int]]:
    """Yield ranges of passages of about BLOCK pieces, at least one passage each."""
    first = 0
    while first < len(offsets) - 1:
        last = int(np.searchsorted(offsets, offsets[first] + BLOCK, side="right")) - 1
        last = max(last, first + 1)
        yield first, last
        first = last


def _starts(roles: NDArray[np.uint8], offsets: Rows) -> Rows:
    """Return the positions at which sentences begin."""
    filled = np.diff(offsets) > 0
    heads = offsets[:-1][filled]
    begins = np.zeros(len(roles), bool)
    ended = _ended(roles)
    begins[1:] = ended[:-1] & ~ended[1:]
    begins[heads] = True
    positions = np.flatnonzero(begins)
    long = np.diff(positions, append=len(roles)) >= MIN_PIECES
    positions = positions[long]
    # A short sentence joins the one before it; at the head of a passage it joins the first long one.
    owner = np.searchsorted(heads, positions, side="right")
    leads = np.diff(owner, prepend=0) > 0
    kept = np.zeros(len(roles), bool)
    kept[positions[~leads]] = True
    kept[heads] = True
    return np.flatnonzero(kept)


def _ended(roles: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return the pieces that end a sentence, with the quotation marks and brackets that close it."""
    ended = (roles & ENDS) > 0
    inside = (roles[1:-1] & POINT > 0) & (roles[:-2] & DIGIT_LAST > 0) & (roles[2:] & DIGIT_FIRST > 0)
    ended[1:-1] &= ~inside
    closes = (roles & CLOSES) > 0
    for _ in range(2):
        ended[1:] |= ended[:-1] & closes[1:]
    return ended
