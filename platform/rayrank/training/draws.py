"""Random draws as a function of (seed, phase, epoch, row), so that a resumed training repeats them."""

import zlib

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

EPOCH_ORDER = 1 << 40
"""The row number of the random stream that shuffles an epoch; no query and no passage has so high a number."""

POOL = 16
"""Number of batches whose texts are sorted by length together; unsorted, half of a batch would be padding."""


def generator(seed: int, phase: str, epoch: int, row: int) -> np.random.Generator:
    """Return the random stream of one query or passage in one epoch of a phase."""
    entropy = [seed, zlib.crc32(phase.encode()), epoch, row]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def by_length(rows: Rows, lengths: Rows, batch_size: int, rng: np.random.Generator) -> list[int]:
    """Return rows ordered so that those of a batch have similar lengths and little padding; batches are shuffled.

    `lengths` has the length of each row; a smaller last batch stays the last.
    """
    whole = len(rows) // batch_size * batch_size
    order, rest = np.split(rng.permutation(len(rows)), [whole])
    for begin in range(0, whole, batch_size * POOL):
        pool = order[begin : begin + batch_size * POOL]
        pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    batches = rng.permutation(order.reshape(-1, batch_size))
    shuffled: list[int] = rows[np.concatenate([batches.ravel(), rest])].tolist()
    return shuffled


def draw(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return `count` rows sampled without replacement, or all rows, shuffled, if there are fewer."""
    return rng.permutation(rows)[:count]


def draw_by_weight(rows: Rows, weights: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return `count` rows sampled without replacement with probabilities proportional to their weights."""
    if len(rows) <= count or weights.min() == weights.max():
        return draw(rows, count, rng)
    return rng.choice(rows, count, replace=False, p=weights / weights.sum())
