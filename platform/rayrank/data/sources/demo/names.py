"""Invented names in families: the names of siblings have the same first word pieces and differ only at the end."""

import random
from functools import cache

FAMILY = 4
"""Names per family."""

# Beginnings that an English WordPiece vocabulary splits into short pieces, so that siblings share their first pieces.
_ONSETS = (
    "brel", "dorv", "drem", "fenv", "galm", "gost", "grev", "harv", "hesk", "jorm", "kerv", "kelv",
    "lorv", "melv", "mirv", "nalv", "norv", "ostr", "pelm", "parv", "quilv", "rask", "relv", "selm", "skel",
    "sorv", "talv", "tesk", "thorv", "torm", "trev", "vask", "velm", "vorn", "wesk", "yarv", "zelm", "zorv",
    "bogr", "dulm", "fald", "glim", "hald", "jask", "kresk", "malv", "plov", "wulm", "brosk", "crav",
    "drosk", "frel", "glosk", "gwel", "hulm", "jelv", "krem", "lusk", "morv",
)  # fmt: skip
_VOWELS = "aeiou"
_JOINTS = "dklmnrtv"
_RHYMES = ("a", "in", "ost", "el", "uk", "ith", "ondo", "ane", "esk")
_LINKS = ("ba", "se", "ni", "go", "fu")


def family_names(seed: int, family: int) -> tuple[str, ...]:
    """Return a family's names, in lower case; no name occurs in two families."""
    stems = _stems(seed)
    lap, place = divmod(family, len(stems))
    start, joint = stems[place]
    stem = start + _links(lap) + joint
    rhymes = random.Random(f"{seed}:family:{family}").sample(_RHYMES, FAMILY)
    return tuple(stem + rhyme for rhyme in rhymes)


@cache
def _stems(seed: int) -> list[tuple[str, str]]:
    stems = [(onset + vowel, joint) for onset in _ONSETS for vowel in _VOWELS for joint in _JOINTS]
    random.Random(f"{seed}:stems").shuffle(stems)
    return stems


def _links(lap: int) -> str:
    """Return extra syllables that encode how often all stems have been used before."""
    if not lap:
        return ""
    lap, digit = divmod(lap - 1, len(_LINKS))
    return "k" + _LINKS[digit] + _links(lap)
