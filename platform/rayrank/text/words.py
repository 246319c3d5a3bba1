"""Which word pieces begin a word: a property of the vocabulary, one small number a piece."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rayrank.text.ragged import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTINUES, STARTS, ALONE = 0, 1, 2
"""A piece goes on with the word before it, begins one, or (special tokens, punctuation) is one all by itself."""


def word_table(tokenizer: "PreTrainedTokenizerFast") -> NDArray[np.int8]:
    """Return for every id of the vocabulary how it stands to words."""
    pieces = [tokenizer.backend_tokenizer.id_to_token(row) or "" for row in range(len(tokenizer))]
    mark = _mark(pieces)
    table = np.array([_role(piece, mark) for piece in pieces], dtype=np.int8)
    table[tokenizer.all_special_ids] = ALONE
    return table


def multi_piece_queries(queries: Ragged, table: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return for each row of ids whether it holds a word of several pieces, as STRM sees words."""
    roles = table[queries.values]
    goes_on = roles == CONTINUES
    goes_on[1:] &= roles[:-1] != ALONE
    # What a row begins with begins a word; the offset of empty rows at the end lies behind the last id.
    goes_on[queries.offsets[queries.offsets < len(roles)]] = False
    before = np.concatenate([[0], np.cumsum(goes_on)])
    found: NDArray[np.bool_] = before[queries.offsets[1:]] > before[queries.offsets[:-1]]
    return found


def _mark(pieces: list[str]) -> str:
    """Return what this vocabulary marks words with: `##` before continuations, or a sign before beginnings."""
    counts = {mark: sum(piece.startswith(mark) for piece in pieces) for mark in ("##", "Ġ", "▁")}
    return max(counts, key=lambda mark: counts[mark])


def _role(piece: str, mark: str) -> int:
    if mark == "##":
        return CONTINUES if piece.startswith("##") else STARTS
    begins = piece.startswith(mark)
    rest = piece.removeprefix(mark)
    # Line ends and tabs, as bytes are written there: words on either side of them are two.
    if rest and not rest.strip("ĊĉčĠ▁\n\t\r "):
        return ALONE
    # Such vocabularies cut punctuation off without a mark; as a word's last piece it would stand for the word.
    # Bytes of other scripts show as letters or signs beyond ASCII: those belong to words.
    if rest and all(ord(sign) < 128 and not sign.isalnum() for sign in rest):
        return ALONE
    return STARTS if begins else CONTINUES
