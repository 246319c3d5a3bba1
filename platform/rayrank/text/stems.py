"""Porter's stemmer, with the two rules that its author added later, as in Lucene's `PorterStemFilter`.

Lucene's own stemmer would start a JVM, which stays in the process; no other runtime dependency has this stemmer.
"""

import re
from functools import lru_cache

_CONSONANTS, _VOWELS = "[^aeiou][^aeiouy]*", "[aeiouy][aeiou]*"
_HAS_VOWEL = re.compile(f"(?:{_CONSONANTS})?[aeiouy]")
_MEASURE_ABOVE_0 = re.compile(f"(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}")
_MEASURE_1 = re.compile(f"(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}(?:{_VOWELS})?$")
_MEASURE_ABOVE_1 = re.compile(f"(?:{_CONSONANTS})?{_VOWELS}{_CONSONANTS}{_VOWELS}{_CONSONANTS}")
_SHORT = re.compile(f"{_CONSONANTS}[aeiouy][^aeiouwxy]$")
"""Consonant, vowel, consonant, such as `hop`: what is left of `hoping` gets its e back."""

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = "ement ance ence able ible ment ant ent ism ate iti ous ive ize ion al er ic ou".split()


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if len(word) < 3:
        return word
    # A y in front is a consonant; the patterns take a capital Y for one.
    word = "Y" + word[1:] if word[0] == "y" else word
    word = _without_y(_without_past(_without_plural(word)))
    word = _replaced(word, _STEP_2)
    word = _replaced(word, _STEP_3)
    return _without_e(_without_suffix(word)).replace("Y", "y")


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _without_past(word: str) -> str:
    if word.endswith("eed"):
        return word[:-1] if _MEASURE_ABOVE_0.match(word[:-3]) else word
    suffix = next((each for each in ("ed", "ing") if word.endswith(each)), "")
    left = word.removesuffix(suffix)
    if not suffix or not _HAS_VOWEL.match(left):
        return word
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if re.search(r"([^aeiouylsz])\1$", left):
        return left[:-1]
    return left + "e" if _SHORT.match(left) else left


def _without_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and _HAS_VOWEL.match(word[:-1]) else word


def _replaced(word: str, suffixes: dict[str, str]) -> str:
    """Replace the first suffix of the table that a word ends in, if Porter's measure of the rest is above 0."""
    suffix = next((each for each in suffixes if word.endswith(each)), None)
    if suffix is None or not _MEASURE_ABOVE_0.match(word.removesuffix(suffix)):
        return word
    return word.removesuffix(suffix) + suffixes[suffix]


def _without_suffix(word: str) -> str:
    suffix = next((each for each in _STEP_4 if word.endswith(each)), None)
    if suffix is None:
        return word
    left = word.removesuffix(suffix)
    is_removed = _MEASURE_ABOVE_1.match(left) and (suffix != "ion" or left.endswith(("s", "t")))
    return left if is_removed else word


def _without_e(word: str) -> str:
    left = word.removesuffix("e")
    if left != word and (_MEASURE_ABOVE_1.match(left) or (_MEASURE_1.match(left) and not _SHORT.match(left))):
        word = left
    return word[:-1] if word.endswith("ll") and _MEASURE_ABOVE_1.match(word) else word
