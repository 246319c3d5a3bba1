"""Approximate dense search for large corpora: faiss compares a query with the nearest clusters of vectors only."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import faiss
import numpy as np
from numpy.typing import NDArray

from rayrank.core.progress import log
from rayrank.retrieval.dense import Found, Vectors, exact_search

PER_CLUSTER = 64
"""Vectors per cluster in the sample that k-means is trained on; faiss recommends 39 to 256."""

DEPTH = 100
"""The recall of approximate search is measured against this many best passages of exact search."""

SAME_SCORE = 1e-5
"""Relative difference up to which two scores are equal: faiss and torch add products in different orders."""


class Built(NamedTuple):
    """An index in memory, and facts about it for the manifest."""

    index: Any
    facts: dict[str, Any]


def build(blocks: Callable[[], Iterable[Vectors]], count: int, queries: Vectors, recall: float) -> Built:
    """Return an index that finds at least a share `recall` of the exact top 100, on average over `queries`.

    `blocks` is called once for each pass over the vectors: to sample, to add, and to search exactly.
    """
    clusters = max(1, min(1 << round(np.log2(4 * np.sqrt(count))), count // 2))
    sample = _sample(blocks(), count, min(count, PER_CLUSTER * clusters))
    dimension = sample.shape[1]
    quantizer = faiss.IndexFlatIP(dimension)
    # The index keeps vectors as float16, as they are stored, so the scores of found passages are exact.
    index = faiss.IndexIVFScalarQuantizer(
        quantizer, dimension, clusters, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT, False
    )
    index.train(sample)
    for block in blocks():
        index.add(block.astype(np.float32))
    probes, reached = _probes(index, queries, exact_search(queries, blocks(), DEPTH, "cpu"), recall)
    log.info("approximate search in %s of %s clusters finds %.3f of the exact top %s", probes, clusters, reached, DEPTH)
    return Built(index, {"clusters": clusters, "probes": probes, f"recall@{DEPTH}": reached})


def search(index: Any, queries: Vectors, depth: int, probes: int) -> Found:
    """Return the best passages of the `probes` clusters that are nearest to each query; -1 where there are too few."""
    parameters = faiss.SearchParametersIVF(nprobe=probes)  # type: ignore[call-arg]
    scores, rows = index.search(queries.astype(np.float32), depth, params=parameters)
    return Found(scores, rows)


def recall_of(found: Found, exact: Found) -> float:
    """Return the mean share of each query's exact top k that was found; k is the depth of `exact`.

    Passages whose score equals that of the k-th count too, because which of them an exact search returns is arbitrary.
    """
    last = exact.scores[:, -1:]
    reached = (found.scores >= last - SAME_SCORE * np.abs(last)) & (found.rows >= 0)
    return float((reached.sum(1) / exact.scores.shape[1]).mean())


def _probes(index: Any, queries: Vectors, exact: Found, recall: float) -> tuple[int, float]:
    """Return how many clusters to read, the smallest power of two that reaches `recall`, and the recall reached."""
    probes = 1
    while True:
        reached = recall_of(search(index, queries, exact.scores.shape[1], probes), exact)
        if reached >= recall or probes >= index.nlist:
            return probes, reached
        probes *= 2


def _sample(blocks: Iterable[Vectors], count: int, size: int) -> NDArray[np.float32]:
    """Return a random sample of the vectors, the same in every process."""
    chosen = np.sort(np.random.default_rng(0).choice(count, size, replace=False))
    found, start = [], 0
    for block in blocks:
        first, last = np.searchsorted(chosen, [start, start + len(block)])
        found.append(block[chosen[first:last] - start].astype(np.float32))
        start += len(block)
    return np.concatenate(found)
