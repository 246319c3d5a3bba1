"""Sets of (query, passage) pairs, looked up for whole tables at once."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.data.ids import PairLookup

Mask = NDArray[np.bool_]


class PairSet:
    """A set of pairs, kept as integers: looking up millions of rows creates no Python object per row."""

    def __init__(self, pairs: pa.Table) -> None:
        """Take the columns query_id and passage_id."""
        query_ids, passage_ids = (pc.unique(pairs[name]) for name in ("query_id", "passage_id"))
        self._lookup, self._num_passages = PairLookup(query_ids, passage_ids), len(passage_ids)
        self._codes = pd.Index(np.unique(self._encode(pairs)))

    def __len__(self) -> int:
        return len(self._codes)

    def marks(self, table: pa.Table) -> Mask:
        """Return for each row whether its pair is in the set."""
        return self._codes.get_indexer(self._encode(table)) >= 0  # type: ignore[no-any-return]

    def _encode(self, table: pa.Table) -> NDArray[np.int64]:
        """Return one integer per pair, -1 if the set does not contain its query or its passage."""
        queries, passages = self._lookup(table)
        return np.where((queries < 0) | (passages < 0), -1, queries * self._num_passages + passages)


def relevant(judgments: pa.Table, relevant_from: int = 1) -> pa.Table:
    """Return the judgments whose grade counts as relevant."""
    return judgments.filter(pc.greater_equal(judgments["relevance"], relevant_from))


def relevant_pairs(judgments: pa.Table, relevant_from: int = 1) -> PairSet:
    """Return the pairs judged relevant."""
    return PairSet(relevant(judgments, relevant_from))
