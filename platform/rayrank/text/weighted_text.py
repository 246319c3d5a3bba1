"""DeepCT's weights as text: each word is repeated by its weight, which thus becomes its term frequency in Lucene."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class WeightedText(NamedTuple):
    """A text whose words are repeated, the number of its distinct words, and its length."""

    text: str
    num_kept: int
    """Number of distinct words with a term frequency above 0."""
    length: int
    """Number of words, repetitions included: the sum of their term frequencies."""


def weighted_text(words: Sequence[str], weights: NDArray[np.float32], scale: int) -> WeightedText:
    """Return each word of a passage round(scale * weight) times; words whose frequency is then below 1 are dropped.

    The weight of a word that occurs several times, in upper or lower case, is its highest: the weights are not added
    up, because each of them already predicts the share of the passage's queries that contain the word.
    """
    frequencies: dict[str, int] = {}
    spelled: dict[str, str] = {}
    for word, frequency in zip(words, np.rint(scale * weights).astype(np.int64).tolist(), strict=True):
        lower = word.lower()
        spelled.setdefault(lower, word)
        frequencies[lower] = max(frequency, frequencies.get(lower, 0))
    kept = {lower: frequency for lower, frequency in frequencies.items() if frequency > 0}
    text = " ".join(" ".join([spelled[lower]] * frequency) for lower, frequency in kept.items())
    return WeightedText(text, len(kept), sum(kept.values()))
