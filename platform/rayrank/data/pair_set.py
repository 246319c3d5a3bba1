"""Which rows of a table name one of a set of (query, passage) pairs."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.data.ids import PairLookup

Mask = NDArray[np.bool_]


class PairSet:
    """Pairs as numbers: looking up millions of rows needs no Python object a row."""

    def __init__(self, pairs: pa.Table) -> None:
        """Take the columns query_id and passage_id."""
        query_ids, passage_ids = (pc.unique(pairs[name]) for name in ("query_id", "passage_id"))
        self._rows, self._num_passages = PairLookup(query_ids, passage_ids), len(passage_ids)
        self._keys = pd.Index(np.unique(self._numbers(pairs)))

    def __len__(self) -> int:
        return len(self._keys)

    def marks(self, table: pa.Table) -> Mask:
        """Return for each row whether its pair is in the set."""
        return self._keys.get_indexer(self._numbers(table)) >= 0  # type: ignore[no-any-return]

    def _numbers(self, table: pa.Table) -> NDArray[np.int64]:
        """Return one number a pair, -1 where the set knows the query or the passage nowhere."""
        queries, passages = self._rows(table)
        return np.where((queries < 0) | (passages < 0), -1, queries * self._num_passages + passages)


def relevant_pairs(judgments: pa.Table) -> PairSet:
    """Return the pairs judged relevant: relevance 1 or more."""
    return PairSet(judgments.filter(pc.greater(judgments["relevance"], 0)))
