"""Passages that share a word piece with a query's word, but do not have that word.

DR-BERT's example: `bogue` is cut into `bog ##ue`, so a passage about a `bog` has one of its pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayrank.core.config import InputConfig
from rayrank.core.errors import ConfigError
from rayrank.text.markers import Markers, number_of
from rayrank.text.ragged import Ids, Ragged
from rayrank.text.words import word_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MIN_LETTERS = 2
"""Letters of a piece that counts as shared: nearly every passage has pieces such as `##s` and `##19`."""


class PieceWord(NamedTuple):
    """A word of a text, by its word pieces."""

    text: str
    pieces: tuple[str, ...]
    ids: tuple[int, ...]
    first: int
    """The position of its first piece in the text."""
    term: int
    """Equal for the same word."""

    @property
    def same(self) -> list[int]:
        """The terms of the word itself and of its plural or singular.

        Porter's stems would be too coarse: those of `bogue` and `bogus` are equal.
        """
        singular = [self.text[:-1]] if self.text.endswith("s") and not self.text.endswith(("ss", "us")) else []
        return [self.term, *map(number_of, [f"{self.text}s".lower(), *(text.lower() for text in singular)])]


class Shared(NamedTuple):
    """A cut word of a query, and the words of a passage that share pieces with it."""

    word: PieceWord
    others: list[PieceWord]


@dataclass(frozen=True)
class SharedPieces:
    """Finds cut words, which are those of several pieces, and texts that share their pieces without the word."""

    _markers: Markers = field(repr=False)
    """Knows the words of rows of ids and the term of each."""
    _counts: NDArray[np.bool_] = field(repr=False)
    """For each id whether a text that has it shares a piece."""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerFast") -> "SharedPieces":
        """Take the tokenizer that made the ids."""
        try:
            markers = Markers.of(tokenizer, InputConfig(markers=1, marker_stems=False, marker_stop_words=True))
        except ConfigError:
            raise ConfigError(
                "jobs.cut_words cannot be used: the tokenizer does not mark where words begin, so no word is cut; name "
                "another model in text.tokenizer and encoder.name."
            ) from None
        texts = (word_text([piece], markers.boundary_mark) for piece in markers.pieces)
        return cls(markers, np.array([sum(map(str.isalpha, text)) >= MIN_LETTERS for text in texts]))

    def cut_words(self, ids: Ids) -> list[PieceWord]:
        """Return the distinct words of several pieces in a text; words without a piece that counts are left out."""
        words: dict[int, PieceWord] = {}
        for word in self._words(ids):
            if len(word.ids) > 1 and self._counts[[*word.ids]].any():
                words.setdefault(word.term, word)
        return list(words.values())

    def misleading(self, cut_words: Sequence[PieceWord], texts: Ragged) -> NDArray[np.bool_]:
        """Return for each text whether it has a piece of one of the words, but not that word."""
        ids, terms = texts.flat(), np.abs(self._markers.terms(texts))
        of_text = np.repeat(np.arange(len(texts)), texts.lengths())

        def having(is_match: NDArray[np.bool_]) -> NDArray[np.bool_]:
            return np.bincount(of_text[is_match], minlength=len(texts)) > 0

        found = np.zeros(len(texts), np.bool_)
        for word in cut_words:
            found |= having(np.isin(ids, self.counting(word))) & ~having(np.isin(terms, word.same))
        return found

    def shared(self, cut_words: Sequence[PieceWord], ids: Ids) -> list[Shared]:
        """Return each of the words that a text does not have but shares pieces with, and the text's words."""
        words = list(self._words(ids))
        terms = {word.term for word in words}
        found = [
            Shared(cut, [word for word in words if set(word.ids).intersection(self.counting(cut))])
            for cut in cut_words
            if terms.isdisjoint(cut.same)
        ]
        return [each for each in found if each.others]

    def counting(self, word: PieceWord) -> list[int]:
        """Return the pieces of a word that make another text share it."""
        return [number for number in word.ids if self._counts[number]]

    def _words(self, ids: Ids) -> list[PieceWord]:
        """Return the words of a text in order, without punctuation and special tokens."""
        terms = self._markers.terms(Ragged.of([ids]))
        bounds = [*np.flatnonzero(terms >= 0).tolist(), len(ids)]
        return [
            self._word(ids[start:stop].tolist(), start, int(terms[start]))
            for start, stop in pairwise(bounds)
            if terms[start] > 0
        ]

    def _word(self, ids: list[int], first: int, term: int) -> PieceWord:
        pieces = tuple(self._markers.pieces[number] for number in ids)
        return PieceWord(word_text(pieces, self._markers.boundary_mark), pieces, tuple(ids), first, term)
