"""The union of several runs' candidates: each passage once per query, with its score and rank in every run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core.records import CANDIDATES
from rayrank.data.rows import by_query, long_column, ranks_within_query

Ints = NDArray[np.int64]
Values = NDArray[np.float64]
Scores = NDArray[np.float32]

NO_RANK = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Union:
    """The passages of several runs. The rows of a query lie together, those of the first run first."""

    query_ids: list[str]
    of_query: Ints
    """Each row's index among the query ids."""
    pairs: pa.Table
    """(query_id, passage_id)"""
    scores: Values
    """(runs, rows); NaN where a run does not have a passage."""
    ranks: Ints
    """(runs, rows), as the runs store them: they order equal scores; NO_RANK where a run does not have a passage."""

    @classmethod
    def of(cls, runs: Sequence[pa.Table]) -> "Union":
        """Join runs by query and passage."""
        rows = pa.concat_tables([run.select(CANDIDATES.names).replace_schema_metadata(None) for run in runs])
        query_ids, queries = by_query(rows)
        passages = long_column(rows, "passage_id").dictionary_encode().indices.to_numpy().astype(np.int64)
        _, first, place = np.unique(queries << 32 | passages, return_index=True, return_inverse=True)
        order = np.lexsort((first, queries[first]))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        place = position[place]
        scores, ranks = np.full((len(runs), len(order)), np.nan), np.full((len(runs), len(order)), NO_RANK)
        start = 0
        for number, run in enumerate(runs):
            own = place[start : start + len(run)]
            scores[number, own], ranks[number, own] = run["score"].to_numpy(), run["rank"].to_numpy()
            start += len(run)
        pairs = rows.select(["query_id", "passage_id"]).take(pa.array(first[order]))
        return cls(query_ids, queries[first[order]], pairs, scores, ranks)

    def present(self, run: int) -> Ints:
        """Return the rows that a run has."""
        return np.flatnonzero(self.ranks[run] != NO_RANK)

    def positions(self, run: int) -> Ints:
        """Return the positions, from 1 on, of the rows that a run has: by score, equal scores by rank."""
        rows = self.present(run)
        return _sorted(self.of_query[rows], -self.scores[run, rows], self.ranks[run, rows])[1]

    def table(
        self, scores: Scores, leading: Sequence[int], depth: int | None = None, best_first: bool = False
    ) -> pa.Table:
        """Return the rows under new scores, cut to `depth`.

        Ties are broken by the ranks in the runs of `leading`, in that order. With `best_first` (for a first stage) rows
        are sorted by score and `rank` is their position; otherwise they keep their order, and `rank` is the
        tie-breaker.
        """
        _, ties = _sorted(self.of_query, *(self.ranks[run] for run in leading))
        order, position = _sorted(self.of_query, -scores, ties)
        kept = order if best_first else np.arange(len(order))
        if depth is not None:
            kept = kept[position[kept] <= depth]
        rank = position if best_first else ties
        columns = [pa.array(rank[kept], pa.int32()), pa.array(scores[kept], pa.float32())]
        return pa.table([*self.pairs.take(pa.array(kept)).columns, *columns], schema=CANDIDATES)


def reciprocal_ranks(union: Union, k: int) -> Scores:
    """Return the sum of 1 / (k + rank) of every passage over the runs that have it."""
    total = np.zeros(len(union.of_query))
    for run in range(len(union.scores)):
        total[union.present(run)] += 1 / (k + union.positions(run))
    return total.astype(np.float32)


def _sorted(of_query: Ints, *keys: NDArray[np.generic]) -> tuple[Ints, Ints]:
    """Return the rows sorted by query and then by the keys, the first one first, and each row's position, from 1 on."""
    order = np.lexsort((*reversed(keys), of_query))
    position = np.empty(len(order), np.int64)
    position[order] = ranks_within_query(of_query[order])
    return order, position
