"""Which word pieces begin a word, as a table with one number per id of the vocabulary."""

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rayrank.text.ragged import Ragged

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CONTINUES, STARTS, ALONE = 0, 1, 2
"""A piece continues the word before it, starts a word, or (special tokens, punctuation) is a word by itself."""

WORD_PIECE, BYTE_LEVEL, SENTENCE_PIECE = "##", "Ġ", "▁"
"""What vocabularies mark word boundaries with: WordPiece marks continuations, the other two mark beginnings."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese characters."""

_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHER = [byte for byte in range(256) if byte not in _PRINTED]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + place): byte for place, byte in enumerate(_OTHER)}
"""The byte behind each character of a byte-level vocabulary."""


def word_table(tokenizer: "PreTrainedTokenizerFast") -> NDArray[np.int8]:
    """Return CONTINUES, STARTS or ALONE for every id of the vocabulary; all are words if nothing marks boundaries."""
    size = max(tokenizer.get_vocab().values(), default=-1) + 1
    pieces = [tokenizer.backend_tokenizer.id_to_token(row) or "" for row in range(size)]
    mark = boundary_mark(pieces)
    table = np.array([_role(piece, mark) for piece in pieces], dtype=np.int8)
    table[tokenizer.all_special_ids] = ALONE
    return table


def starts_of_words(texts: Ragged, table: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return for each id of the rows whether it begins a word."""
    roles = table[texts.values]
    starts: NDArray[np.bool_] = roles != CONTINUES
    starts[1:] |= roles[:-1] == ALONE
    # The first piece of a row begins a word; offsets of empty rows at the end lie behind the last id.
    starts[texts.offsets[texts.offsets < len(roles)]] = True
    return starts


def multi_piece_queries(queries: Ragged, table: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return for each row of ids whether it has a word of several pieces, by the word boundaries that STRM uses."""
    return cut_words(queries, table) > 0


def cut_words(queries: Ragged, table: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return how many words of each row of ids have several pieces."""
    continues = ~starts_of_words(queries, table)
    # A word of several pieces has one second piece, which does not follow a piece that continues a word.
    seconds = continues.copy()
    seconds[1:] &= ~continues[:-1]
    before = np.concatenate([[0], np.cumsum(seconds)])
    found: NDArray[np.int64] = before[queries.offsets[1:]] - before[queries.offsets[:-1]]
    return found


def boundary_mark(pieces: Sequence[str]) -> str:
    """Return what the vocabulary marks word boundaries with, or an empty string if nothing."""
    counts = {
        mark: sum(piece.startswith(mark) for piece in pieces) for mark in (WORD_PIECE, BYTE_LEVEL, SENTENCE_PIECE)
    }
    most = max(counts, key=lambda mark: counts[mark])
    return most if counts[most] else ""


def word_text(pieces: Sequence[str], mark: str) -> str:
    """Return the text of a word from its pieces and the vocabulary's boundary mark."""
    if mark == WORD_PIECE:
        return "".join(piece.removeprefix(mark) for piece in pieces)
    return _text("".join(pieces), mark).strip()


def _role(piece: str, mark: str) -> int:
    if not mark:
        return STARTS
    if mark == WORD_PIECE:
        return CONTINUES if piece.startswith(mark) else STARTS
    rest = _text(piece, mark).removeprefix(" ")
    # Vocabularies that mark beginnings do not mark what comes directly after a word: line ends, punctuation, and the
    # next word in scripts without spaces. It must not count as the word's last piece, which STRM lets stand for it.
    if rest and (_UNSPACED.search(rest) or all(map(_separates_words, rest))):
        return ALONE
    return STARTS if piece.startswith(mark) else CONTINUES


def _text(piece: str, mark: str) -> str:
    """Return the piece as it stands in a text, or an empty string for some of the bytes of a character."""
    if mark == SENTENCE_PIECE:
        return piece.replace(mark, " ")
    if not _BYTES.keys() >= set(piece):  # a token that was added to the vocabulary as a text
        return piece
    try:
        return bytes(_BYTES[character] for character in piece).decode()
    except UnicodeDecodeError:
        return ""


def _separates_words(character: str) -> bool:
    return character.isspace() or unicodedata.category(character)[0] in "PSZ"
