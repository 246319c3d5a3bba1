"""Which invented thing stands behind an index: its name, its category, its split."""

import random
from typing import NamedTuple

from rayrank.data.sources.demo.categories import CATEGORIES
from rayrank.data.sources.demo.category import Category
from rayrank.data.sources.demo.names import FAMILY, family_names

# Splits are dealt out in blocks, so that even the smallest corpus has all three.
_DEAL = ("train",) * 14 + ("dev",) * 3 + ("test",) * 3


class Subject(NamedTuple):
    """One invented thing."""

    name: str
    siblings: tuple[str, ...]
    category: Category
    split: str

    @property
    def slug(self) -> str:
        """Return what its ids begin with."""
        return f"{self.name}-{self.category.noun}"


def subject(seed: int, index: int, num_categories: int) -> Subject:
    """Return the subject of an index; families share a category and take turns with it."""
    family, member = divmod(index, FAMILY)
    names = family_names(seed, family)
    siblings = names[:member] + names[member + 1 :]
    return Subject(names[member], siblings, CATEGORIES[family % num_categories], _split(seed, index))


def _split(seed: int, index: int) -> str:
    block, place = divmod(index, len(_DEAL))
    deal = list(_DEAL)
    random.Random(f"{seed}:split:{block}").shuffle(deal)
    return deal[place]
