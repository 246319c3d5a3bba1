"""Pairs of neighbouring characters, by which texts without spaces between words are searched without a dictionary."""

import re
import unicodedata
from itertools import pairwise

_BLOCKS = ((0x0E00, 0x0E7F), (0x0E80, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F))
"""Thai, Lao, Burmese, Khmer, and the two extensions of Burmese."""
_CHARACTERS = [chr(code) for first, last in _BLOCKS for code in range(first, last + 1)]
_LETTERS = "".join(each for each in _CHARACTERS if unicodedata.category(each)[0] == "L")
_MARKS = "".join(each for each in _CHARACTERS if unicodedata.category(each)[0] == "M")
_RUN = re.compile(f"[{_LETTERS}{_MARKS}]+")
# A letter with the vowel signs and tone marks that are written around it.
_CHARACTER = re.compile(f"[{_LETTERS}]?[{_MARKS}]+|[{_LETTERS}]")
_ZERO_WIDTH_SPACE = "\u200b"


def in_pairs(text: str) -> str:
    """Return a text in which Thai, Lao, Khmer and Burmese letters stand in overlapping pairs, separated by spaces.

    Other characters stay as they are. Zero-width spaces, which some writers put between words, are removed, so that
    texts with and without them have the same pairs.
    """
    return _RUN.sub(_pairs, text.replace(_ZERO_WIDTH_SPACE, ""))


def _pairs(run: re.Match[str]) -> str:
    characters = _CHARACTER.findall(run[0])
    pairs = [first + second for first, second in pairwise(characters)]
    return f" {' '.join(pairs or characters)} "
