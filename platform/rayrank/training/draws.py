"""Random draws as a function of (seed, phase, epoch, row), so that a resumed training repeats them."""

import zlib

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

EPOCH_ORDER = 1 << 40
"""The row whose stream orders the examples of an epoch: no query and no passage has so high a row."""

POOL = 16
"""Batches that are sorted by length together: half of a batch of random texts would be padding."""


def generator(seed: int, phase: str, epoch: int, row: int) -> np.random.Generator:
    """Return the random stream of one query or passage in one epoch of a phase."""
    entropy = [seed, zlib.crc32(phase.encode()), epoch, row]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def by_length(rows: Rows, lengths: Rows, batch_size: int, rng: np.random.Generator) -> list[int]:
    """Return rows in an order whose batches have similar lengths, so that they need little padding; batches are mixed.

    `lengths` has the length of each row; a last batch that is smaller than the others stays the last.
    """
    whole = len(rows) // batch_size * batch_size
    places, rest = np.split(rng.permutation(len(rows)), [whole])
    for begin in range(0, whole, batch_size * POOL):
        pool = places[begin : begin + batch_size * POOL]
        pool[:] = pool[np.argsort(lengths[pool], kind="stable")]
    batches = rng.permutation(places.reshape(-1, batch_size))
    mixed: list[int] = rows[np.concatenate([batches.ravel(), rest])].tolist()
    return mixed


def draw(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return `count` of the rows, each at most once, or all of them in random order where there are fewer."""
    return rng.permutation(rows)[:count]
