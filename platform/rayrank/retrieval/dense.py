"""Dense search: the passages whose vectors have the largest dot products with a query's vector."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.core.artifacts import Artifact
from rayrank.core.records import CANDIDATES

Vectors = NDArray[np.float16] | NDArray[np.float32]

SCORES_AT_ONCE = 1 << 26
"""Maximum number of scores per matrix product, 256 MB as float32: queries are split into slices accordingly."""


class Found(NamedTuple):
    """The best passages of each query, best first: (queries, depth) arrays."""

    scores: NDArray[np.float32]
    rows: NDArray[np.int64]


def read_vectors(artifact: Artifact, name: str) -> tuple[pa.ChunkedArray, Vectors]:
    """Return the ids and the (texts, dimension) vectors of a file that the embedding stage wrote."""
    table = artifact.read_table(name).combine_chunks()
    column = table["vector"].combine_chunks()
    column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return table["id"], column.flatten().to_numpy().reshape(len(table), -1)


def exact_search(queries: Vectors, blocks: Iterable[Vectors], depth: int, device: str | None = None) -> Found:
    """Return the exact top `depth` passages of each query; passages are read in blocks, one in memory at a time.

    Products are summed in float32. Equal scores are ordered by row; which of them are in the top `depth` is arbitrary.
    """
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    query_vectors = torch.from_numpy(queries).to(target).float()
    best = torch.full((len(queries), 0), -torch.inf, device=target)
    rows = torch.zeros((len(queries), 0), dtype=torch.int64, device=target)
    start = 0
    for block in blocks:
        passages = torch.from_numpy(block).to(target).float()
        parts = [
            _merged(query_vectors[part], passages, start, (best[part], rows[part]), depth)
            for part in _slices(len(queries), max(1, SCORES_AT_ONCE // max(1, len(block))))
        ]
        if parts:
            best, rows = (torch.cat(column) for column in zip(*parts, strict=True))
        start += len(block)
    return Found(best.cpu().numpy(), rows.cpu().numpy())


def _merged(
    queries: Tensor, passages: Tensor, start: int, before: tuple[Tensor, Tensor], depth: int
) -> tuple[Tensor, Tensor]:
    """Return the best of what was found before and of one more block, whose first row is `start`."""
    # In full float32, torch's default: TF32 would round both factors to 10 bits and swap passages of similar scores.
    scores = queries @ passages.T
    scores, rows = scores.topk(min(depth, len(passages)), dim=1)
    scores, rows = torch.cat([before[0], scores], 1), torch.cat([before[1], rows + start], 1)
    # Two stable sorts: by row, then by score, so that equal scores keep the order of their rows.
    by_row = rows.argsort(dim=1, stable=True)
    scores, rows = scores.gather(1, by_row), rows.gather(1, by_row)
    by_score = scores.argsort(dim=1, descending=True, stable=True)[:, :depth]
    return scores.gather(1, by_score), rows.gather(1, by_score)


def _slices(count: int, size: int) -> list[slice]:
    return [slice(begin, begin + size) for begin in range(0, count, size)]


class VectorIndex:
    """The vectors of an artifact that the embedding stage wrote, ready to be searched."""

    def __init__(
        self,
        artifact: Artifact,
        approximate: Callable[[Vectors, int], Found] | None = None,
        in_memory: bool = False,
    ) -> None:
        """Open the vectors; `approximate`, if given, is called instead of an exact search.

        `in_memory` keeps all vectors as float32, for exact search with one query at a time.
        """
        self._artifact, self._shards = artifact, artifact.manifest["shards"]
        ids = [artifact.read_table(name, ["id"])["id"] for name in self._shards]
        self._passage_ids = pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string())
        self._approximate = approximate
        keep = in_memory and not approximate
        self._blocks = [np.concatenate([block.astype(np.float32) for block in self._read()])] if keep else None

    def query_vectors(self, query_ids: pa.Array) -> Vectors:
        """Return the stored vectors of some of the dataset's queries."""
        known, vectors = self._queries
        chosen: Vectors = vectors[pc.index_in(query_ids, value_set=known).to_numpy()]
        return chosen

    @cached_property
    def _queries(self) -> tuple[pa.Array, Vectors]:
        """The ids and vectors of all queries, kept because each partition of the queries needs some of them."""
        found = [read_vectors(self._artifact, name) for name in self._artifact.names("queries")]
        known = pa.chunked_array([chunk for ids, _ in found for chunk in ids.chunks], pa.string())
        return known.combine_chunks(), np.concatenate([vectors for _, vectors in found])

    def candidates(self, query_ids: pa.Array, queries: Vectors, depth: int) -> pa.Table:
        """Return the passages with the largest dot products with each query's vector, best first."""
        scores, rows = self._search(queries, depth)
        # An approximate index may find fewer than `depth` passages; the missing rows are -1.
        present = rows >= 0
        ranks = np.broadcast_to(np.arange(1, rows.shape[1] + 1, dtype=np.int32), rows.shape)
        of_query = np.repeat(np.arange(len(rows)), present.sum(1))
        columns = {
            "query_id": query_ids.take(of_query),
            "passage_id": self._passage_ids.take(rows[present]),
            "rank": ranks[present],
            "score": scores[present],
        }
        return pa.table(columns, schema=CANDIDATES)

    def _search(self, queries: Vectors, depth: int) -> Found:
        if self._approximate:
            return self._approximate(queries, depth)
        return exact_search(queries, self._blocks or self._read(), depth)

    def _read(self) -> Iterator[Vectors]:
        return (read_vectors(self._artifact, name)[1] for name in self._shards)
