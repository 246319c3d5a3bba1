"""Which row of the corpus an id is, built once and asked for hundreds of millions of ids."""

from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.data.rows import by_query

Rows = NDArray[np.int64]
Strings: TypeAlias = "pa.Array | pa.ChunkedArray"

WINDOW = 65_536
"""Ids made into numbers at a time: they are padded to the longest of them, which may be an odd one."""


class Lookup:
    """Rows of distinct ids; numbers stand for them, as strings take three times the memory and seven times as long."""

    def __init__(self, ids: Strings) -> None:
        self._numbers = pd.Index(_numbers(ids))

    def __call__(self, ids: Strings) -> Rows:
        """Return the row of each, -1 where it has none."""
        return self._numbers.get_indexer(_numbers(ids)).astype(np.int64, copy=False)  # type: ignore[no-any-return]


class PairLookup:
    """Rows of (query, passage) pairs."""

    def __init__(self, query_ids: Strings, passage_ids: Strings) -> None:
        self._queries, self._passages = Lookup(query_ids), Lookup(passage_ids)

    def __call__(self, pairs: pa.Table) -> tuple[Rows, Rows]:
        """Return the query row and the passage row of each pair, -1 where it has none."""
        # A query has hundreds of pairs and is looked up once.
        query_ids, of_query = by_query(pairs)
        return self._queries(pa.array(query_ids, pa.string()))[of_query], self._passages(pairs["passage_id"])


def _numbers(ids: Strings) -> NDArray[np.uint64]:
    """Return a number an id; two of them get the same one in about one of 400,000 corpora of 9M."""
    column = ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([ids])
    windows = (column.slice(start, WINDOW).combine_chunks() for start in range(0, len(column), WINDOW))
    return np.concatenate([np.empty(0, np.uint64), *map(_hashed, windows)])


def _hashed(ids: pa.Array) -> NDArray[np.uint64]:
    lengths = pc.binary_length(ids).to_numpy()
    width = int(lengths.max()) // 8 * 8 + 8
    padded = pc.ascii_rpad(ids, width, padding="\0").buffers()[2]
    words = np.frombuffer(padded, np.uint64, len(ids) * width // 8).reshape(len(ids), -1)
    # Mixed, or an id and a neighbour that ends with zero bytes would differ in length alone and be one.
    found: NDArray[np.uint64] = pd.util.hash_array(lengths.astype(np.uint64))
    for place in range(words.shape[1]):
        # Only an id's own words count, not how long its neighbours are.
        own = lengths > 8 * place
        found[own] = pd.util.hash_array(found[own] ^ words[own, place])
    return found
