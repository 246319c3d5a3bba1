"""Which passages a query learns from: a function of (seed, epoch, query) alone, so that a resumed run sees the same."""

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def generator(seed: int, epoch: int, query: int) -> np.random.Generator:
    """Return the random stream of one query in one epoch."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, epoch, query])))


def draw(rows: Rows, count: int, rng: np.random.Generator) -> Rows:
    """Return `count` of the rows, each at most once, or all of them in random order where there are fewer."""
    return rng.permutation(rows)[:count]


def pointwise_pairs(
    query: int, positives: Rows, negatives: Rows, ratio: int, rng: np.random.Generator
) -> tuple[Rows, Rows, Rows]:
    """Return every positive of a query and `ratio` negatives for each: query rows, passage rows, labels."""
    drawn = draw(negatives, ratio * len(positives), rng)
    passages = np.concatenate([positives, drawn])
    labels = np.zeros(len(passages), np.int64)
    labels[: len(positives)] = 1
    return np.full(len(passages), query), passages, labels


def listwise_list(
    positives: Rows, negatives: Rows, num_positives: int, num_negatives: int, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return one list of passage rows and its labels; a short list is filled up with row 0 and label -1."""
    chosen, drawn = draw(positives, num_positives, rng), draw(negatives, num_negatives, rng)
    passages = np.zeros(num_positives + num_negatives, np.int64)
    labels = np.full(len(passages), -1, np.int64)
    passages[: len(chosen)], labels[: len(chosen)] = chosen, 1
    end = len(chosen) + len(drawn)
    passages[len(chosen) : end], labels[len(chosen) : end] = drawn, 0
    return passages, labels
