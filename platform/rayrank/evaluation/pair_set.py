"""Which rows of a table name one of a set of (query, passage) pairs."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Mask = NDArray[np.bool_]


class PairSet:
    """Pairs as numbers: looking up millions of rows needs no Python object a row."""

    def __init__(self, pairs: pa.Table) -> None:
        """Take the columns query_id and passage_id."""
        self._query_ids, self._passage_ids = (_distinct(pairs[name]) for name in ("query_id", "passage_id"))
        self._keys = np.unique(self._numbers(pairs))

    def __len__(self) -> int:
        return len(self._keys)

    def marks(self, table: pa.Table) -> Mask:
        """Return for each row whether its pair is in the set."""
        return np.isin(self._numbers(table), self._keys)

    def _numbers(self, table: pa.Table) -> NDArray[np.int64]:
        """Return one number a pair, -1 where the set knows the query or the passage nowhere."""
        queries = _places(table["query_id"], self._query_ids)
        passages = _places(table["passage_id"], self._passage_ids)
        return np.where((queries < 0) | (passages < 0), -1, queries * len(self._passage_ids) + passages)


def relevant_pairs(judgments: pa.Table) -> PairSet:
    """Return the pairs judged relevant: relevance 1 or more."""
    return PairSet(judgments.filter(pc.greater(judgments["relevance"], 0)))


def _distinct(column: pa.ChunkedArray) -> pa.Array:
    return pc.unique(column.cast(pa.large_string()))


def _places(column: pa.ChunkedArray, ids: pa.Array) -> NDArray[np.int64]:
    places = pc.fill_null(pc.index_in(column.cast(pa.large_string()), value_set=ids), -1)
    return places.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
