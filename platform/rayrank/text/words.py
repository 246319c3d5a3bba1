"""Which word pieces begin a word, as a table with one number per id of the vocabulary."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rayrank.text.ragged import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTINUES, STARTS, ALONE = 0, 1, 2
"""A piece continues the word before it, starts a word, or (special tokens, punctuation) is a word by itself."""


def word_table(tokenizer: "PreTrainedTokenizerFast") -> NDArray[np.int8]:
    """Return CONTINUES, STARTS or ALONE for every id of the vocabulary."""
    pieces = [tokenizer.backend_tokenizer.id_to_token(row) or "" for row in range(len(tokenizer))]
    mark = _mark(pieces)
    table = np.array([_role(piece, mark) for piece in pieces], dtype=np.int8)
    table[tokenizer.all_special_ids] = ALONE
    return table


def multi_piece_queries(queries: Ragged, table: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return for each row of ids whether it has a word of several pieces, by the word boundaries that STRM uses."""
    roles = table[queries.values]
    continues = roles == CONTINUES
    continues[1:] &= roles[:-1] != ALONE
    # The first piece of a row begins a word; offsets of empty rows at the end lie behind the last id.
    continues[queries.offsets[queries.offsets < len(roles)]] = False
    before = np.concatenate([[0], np.cumsum(continues)])
    found: NDArray[np.bool_] = before[queries.offsets[1:]] > before[queries.offsets[:-1]]
    return found


def _mark(pieces: list[str]) -> str:
    """Return the vocabulary's word marker: `##` before continuations, or `Ġ` or `▁` before beginnings."""
    counts = {mark: sum(piece.startswith(mark) for piece in pieces) for mark in ("##", "Ġ", "▁")}
    return max(counts, key=lambda mark: counts[mark])


def _role(piece: str, mark: str) -> int:
    if mark == "##":
        return CONTINUES if piece.startswith("##") else STARTS
    begins = piece.startswith(mark)
    rest = piece.removeprefix(mark)
    # Line ends and tabs, as byte-level vocabularies write them: they separate words.
    if rest and not rest.strip("ĊĉčĠ▁\n\t\r "):
        return ALONE
    # These vocabularies do not mark punctuation after a word. It must not count as the word's last piece, which STRM
    # lets stand for the word. Characters beyond ASCII are letters of other scripts, or their bytes in byte-level
    # vocabularies: parts of words.
    if rest and all(ord(character) < 128 and not character.isalnum() for character in rest):
        return ALONE
    return STARTS if begins else CONTINUES
