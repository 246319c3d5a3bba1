"""The subject of an index: its name, category and split, as a function of the seed."""

import random
from typing import NamedTuple

from rayrank.data.sources.demo.categories import CATEGORIES
from rayrank.data.sources.demo.category import Category
from rayrank.data.sources.demo.names import FAMILY, family_names

# Each block of twenty subjects has all three splits, so that the smallest corpus has them too.
_BLOCK_SPLITS = ("train",) * 14 + ("dev",) * 3 + ("test",) * 3


class Subject(NamedTuple):
    """One invented thing."""

    name: str
    siblings: tuple[str, ...]
    category: Category
    split: str

    @property
    def slug(self) -> str:
        """Return the beginning of its query and passage ids."""
        return f"{self.name}-{self.category.noun}"


def subject(seed: int, index: int, num_categories: int) -> Subject:
    """Return the subject of an index; all members of a family have the same category, families alternate."""
    family, member = divmod(index, FAMILY)
    names = family_names(seed, family)
    siblings = names[:member] + names[member + 1 :]
    return Subject(names[member], siblings, CATEGORIES[family % num_categories], _split(seed, index))


def _split(seed: int, index: int) -> str:
    block, place = divmod(index, len(_BLOCK_SPLITS))
    splits = list(_BLOCK_SPLITS)
    random.Random(f"{seed}:split:{block}").shuffle(splits)
    return splits[place]
