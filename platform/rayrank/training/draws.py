"""Random draws as a function of (seed, phase, epoch, row), so that a resumed training repeats them."""

import zlib

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]

EPOCH_ORDER = 1 << 40
"""The row whose stream orders the examples of an epoch: no query and no passage has so high a row."""


def generator(seed: int, phase: str, epoch: int, row: int) -> np.random.Generator:
    """Return the random stream of one query or passage in one epoch of a phase."""
    entropy = [seed, zlib.crc32(phase.encode()), epoch, row]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def draw(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return `count` of the rows, each at most once, or all of them in random order where there are fewer."""
    return rng.permutation(rows)[:count]
