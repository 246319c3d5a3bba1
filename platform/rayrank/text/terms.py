"""The words of a text, and the term that Lucene's English analyser makes of each.

Other languages have the same words; their terms are Lucene's own (`retrieval/terms.py`).
"""

import re
from collections.abc import Callable, Sequence

from rayrank.text.stems import stem

Terms = Callable[[Sequence[str]], list[frozenset[str]]]
"""Takes texts or words; returns the distinct terms of each."""

_JOINS = "'’‘.:·"
"""Punctuation that Lucene keeps within a word, as in `don't` and `U.S`; within numbers it also keeps `,` and `;`."""
_SPLITS = r"""\s!"#$%&()*+\-/<=>?@\[\\\]^`{|}~¡-©«¬®-±´¶¸»¿×÷"""
_SPLITS += "\u2010-\u2017\u201a-\u2023\u2025\u2026\u2030-\u203e\u20a0-\u20cf"
_ALONE = "\u3040-\u309f\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
"""Hiragana and Han characters, each of which is a word for Lucene."""
_INNER = f"[^{_SPLITS}{_JOINS},;、。{_ALONE}]+"

# A word may hold several of Lucene's tokens but never a part of one, so that Lucene finds the same terms in the words
# of a text as in the text itself.
_WORD = re.compile(rf"[{_ALONE}]|{_INNER}(?:(?:[{_JOINS}]|(?<=\d)[,;](?=\d)){_INNER})*")
_POSSESSIVE = re.compile("['’]s$")


STOP_WORDS = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with".split()
)
"""Lucene's English stop words."""


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text begin and end, in characters."""
    return [found.span() for found in _WORD.finditer(text)]


def words_of(text: str) -> list[str]:
    """Return the words of a text."""
    return _WORD.findall(text)


def term(word: str) -> str:
    """Return the term of a word: lower-case, without a possessive 's, stemmed by Porter's rules."""
    return stem(_POSSESSIVE.sub("", word.lower()))


def terms_of(texts: Sequence[str]) -> list[frozenset[str]]:
    """Return the distinct terms of each text."""
    return [frozenset(map(term, words_of(text))) for text in texts]
