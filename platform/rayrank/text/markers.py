"""MarkedBERT's markers: `[e1]` and `[/e1]` around the first term of a query wherever it occurs, `[e2]` and so on.

Terms are compared as numbers, one for each piece of a text, so that whole batches of pairs are marked without a loop.
"""

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rayrank.core.config import InputConfig
from rayrank.core.errors import ConfigError
from rayrank.text.prefixes import query_places
from rayrank.text.ragged import Ids, Ragged, Rows, Windows
from rayrank.text.terms import STOP_WORDS, term
from rayrank.text.words import ALONE, CONTINUES, boundary_mark, word_table, word_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""An odd number whose powers weigh the pieces of a word, so that words of the same pieces in another order differ."""

APOSTROPHES, ENDINGS = ("'", "’"), ("s", "t", "d", "m", "ll", "re", "ve")
"""What English words end in after an apostrophe, where a tokenizer makes words of their own of both."""

MOST_KNOWN_WORDS = 1_000_000
"""Words of several pieces whose terms are kept in memory."""


def num_ids(tokenizer: "PreTrainedTokenizerFast", inputs: InputConfig) -> int:
    """Return the size of a vocabulary with the markers that the settings ask for."""
    return max(tokenizer.get_vocab().values(), default=-1) + 1 + 2 * inputs.markers


def number_of(term: str) -> int:
    """Return the number of a term, above 0 and the same in every process."""
    return zlib.crc32(term.encode()) & 0x7FFFFFFF or 1


class QueryTerms(NamedTuple):
    """The terms of queries, numbered in each query by their first occurrence."""

    numbers: Ids
    """For each piece its term's number, negative if the piece continues a word; 0 outside the query, and for what is
    never marked."""
    keys: NDArray[np.int64]
    """`row << 32 | term` of every term of every query, ascending."""
    key_numbers: NDArray[np.int64]
    """The number of each of these terms."""


@dataclass(frozen=True)
class Markers:
    """How terms are found in rows of ids, and the ids of their markers."""

    count: int
    """Terms of a query that get markers; further ones stay unmarked."""
    first_id: int
    """The id of `[e1]`. `[/e1]`, `[e2]` and the others follow; the vocabulary's own ids come before."""
    stems: bool
    stop_words: bool
    pieces: list[str] = field(repr=False)
    """The vocabulary; special tokens are empty."""
    roles: NDArray[np.int8] = field(repr=False)
    """Whether a piece begins a word (`word_table`)."""
    boundary_mark: str
    _apostrophes: NDArray[np.bool_] = field(repr=False)
    """For each id whether it is an apostrophe."""
    _endings: NDArray[np.bool_] = field(repr=False)
    """For each id whether it is one of ENDINGS."""
    _terms_of_pieces: Ids = field(repr=False)
    """The terms of words of one piece; -1 if the piece was not seen yet."""
    _terms_of_words: dict[int, int] = field(default_factory=dict, repr=False)
    """The terms of words of several pieces that were seen before."""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerFast", inputs: InputConfig) -> "Markers":
        """Return the markers that the settings ask for."""
        roles = word_table(tokenizer)
        pieces = [tokenizer.backend_tokenizer.id_to_token(row) or "" for row in range(len(roles))]
        for special in tokenizer.all_special_ids:
            pieces[special] = ""
        mark = boundary_mark(pieces)
        if not mark:
            raise ConfigError(
                f"input.markers={inputs.markers} cannot be used: the tokenizer does not mark where words begin; set "
                f"input.markers=0."
            )
        texts = [word_text([piece], mark) for piece in pieces]
        apostrophes, endings = (np.array([text in known for text in texts]) for known in (APOSTROPHES, ENDINGS))
        return cls(
            inputs.markers, len(roles), inputs.marker_stems, inputs.marker_stop_words, pieces, roles, mark,
            apostrophes, endings, np.full(len(roles), -1, np.int32),
        )  # fmt: skip

    def name(self, marker_id: int) -> str:
        """Return the text of a marker."""
        number, closes = divmod(marker_id - self.first_id, 2)
        return f"[{'/' if closes else ''}e{number + 1}]"

    def terms(self, texts: Windows) -> Ids:
        """Return the term of each piece of the texts' array, negative if the piece continues a word, 0 if it has none.

        Special tokens, punctuation and, unless they are marked too, stop words have none.
        """
        ids = texts.values
        if not len(ids):
            return np.empty(0, np.int32)
        begins = self.roles[ids] != CONTINUES
        begins[1:] |= self.roles[ids[:-1]] == ALONE
        begins[texts.starts[texts.starts < len(ids)]] = True
        begins[0] = True
        firsts = np.flatnonzero(begins)
        sizes = np.diff(firsts, append=len(ids))
        terms = self._word_terms(ids, firsts, sizes)
        is_ending = self._is_ending(ids, firsts, sizes)
        if isinstance(texts, Ragged):
            # The first word of a text does not go on after the apostrophe that ends the text before.
            is_ending[np.searchsorted(firsts, texts.starts[texts.starts < len(ids)])] = False
        terms[is_ending] = 0
        found = np.repeat(terms, sizes)
        found[~begins] *= -1
        return found

    def number_queries(self, prefixes: Windows, sep_id: int, has_type: bool) -> QueryTerms:
        """Return the numbered terms of `[CLS] type [SEP] query [SEP]`, whose type is never marked."""
        found = self.terms(prefixes)
        rows, places = query_places(prefixes, sep_id, has_type)
        kept = found[places] != 0
        rows, places = rows[kept], places[kept]
        pairs, first, inverse = np.unique(
            rows << 32 | np.abs(found[places]).astype(np.int64), return_index=True, return_inverse=True
        )
        order = np.argsort(first)
        of_query = pairs[order] >> 32
        ranks = np.empty(len(pairs), np.int64)
        ranks[order] = np.arange(len(pairs)) - np.searchsorted(of_query, of_query)
        used = ranks < self.count
        numbers = np.zeros(len(found), np.int32)
        numbers[places] = np.where(used, ranks + 1, 0)[inverse] * np.sign(found[places])
        return QueryTerms(numbers, pairs[used], ranks[used] + 1)

    def _word_terms(self, ids: Ids, firsts: Rows, sizes: Rows) -> Ids:
        """Return the term of each word; the text of a word is put together once for all words of the same pieces."""
        known = self._terms_of_pieces
        single = ids[firsts[sizes == 1]]
        used = np.flatnonzero(np.bincount(single, minlength=len(known)))
        for number in used[known[used] < 0].tolist():
            known[number] = self._term([number])
        terms = np.empty(len(firsts), np.int32)
        terms[sizes == 1] = known[single]
        is_long = sizes > 1
        if is_long.any():
            terms[is_long] = self._long_word_terms(ids, firsts[is_long], sizes[is_long])
        return terms

    def _is_ending(self, ids: Ids, firsts: Rows, sizes: Rows) -> NDArray[np.bool_]:
        """Return which words are endings after an apostrophe, such as the s of `driver's`, which is no term."""
        found: NDArray[np.bool_] = (sizes == 1) & self._endings[ids[firsts]]
        found[1:] &= self._apostrophes[ids[firsts[1:] - 1]]
        found[:1] = False
        return found

    def _long_word_terms(self, ids: Ids, firsts: Rows, sizes: Rows) -> Ids:
        """Return the terms of words of several pieces."""
        before = np.cumsum(sizes) - sizes
        within = np.arange(sizes.sum()) - np.repeat(before, sizes)
        powers = np.multiply.accumulate(np.full(int(sizes.max()), _FACTOR))
        weighed = (ids[np.repeat(firsts, sizes) + within].astype(np.uint64) + np.uint64(1)) * powers[within]
        codes, example, inverse = np.unique(np.add.reduceat(weighed, before), return_index=True, return_inverse=True)
        known = self._terms_of_words
        terms = np.empty(len(codes), np.int32)
        for place, (code, word) in enumerate(zip(codes.tolist(), example.tolist(), strict=True)):
            found = known.get(code)
            if found is None:
                found = self._term(ids[firsts[word] : firsts[word] + sizes[word]].tolist())
                if len(known) < MOST_KNOWN_WORDS:
                    known[code] = found
            terms[place] = found
        return terms[inverse]

    def _term(self, ids: list[int]) -> int:
        """Return the number of a word's term, 0 if it has none."""
        word = word_text([self.pieces[number] for number in ids], self.boundary_mark).lower()
        if not any(map(str.isalnum, word)) or (not self.stop_words and word in STOP_WORDS):
            return 0
        return number_of(term(word) if self.stems else word)
