"""Lookup of corpus rows by id: built once, and used for hundreds of millions of ids."""

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
"""Ids hashed at a time: each window is padded to its longest id, which may be an outlier."""


class Lookup:
    """Rows by id. Ids are kept as 64-bit hashes: strings take three times the memory and seven times as long."""

    def __init__(self, ids: Strings) -> None:
        self._hashes = pd.Index(_hashes(ids))

    def __call__(self, ids: Strings) -> Rows:
        """Return the row of each id, -1 for an unknown one."""
        return self._hashes.get_indexer(_hashes(ids)).astype(np.int64, copy=False)  # type: ignore[no-any-return]


class PairLookup:
    """Rows by (query id, passage id)."""

    def __init__(self, query_ids: Strings, passage_ids: Strings) -> None:
        self._queries, self._passages = Lookup(query_ids), Lookup(passage_ids)

    def __call__(self, pairs: pa.Table) -> tuple[Rows, Rows]:
        """Return the query row and the passage row of each pair, -1 for an unknown id."""
        # A query has hundreds of pairs, so each query id is looked up only once.
        query_ids, of_query = by_query(pairs)
        return self._queries(pa.array(query_ids, pa.string()))[of_query], self._passages(pairs["passage_id"])


def _hashes(ids: Strings) -> NDArray[np.uint64]:
    """Return one hash per id; of 400,000 corpora with 9M ids each, about one has two ids with the same hash."""
    column = ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([ids])
    windows = (column.slice(start, WINDOW).combine_chunks() for start in range(0, len(column), WINDOW))
    return np.concatenate([np.empty(0, np.uint64), *map(_hash_window, windows)])


def _hash_window(ids: pa.Array) -> NDArray[np.uint64]:
    """Hash the eight-byte words of each id one after the other, for all ids at once."""
    lengths = pc.binary_length(ids).to_numpy()
    width = int(lengths.max()) // 8 * 8 + 8
    padded = pc.ascii_rpad(ids, width, padding="\0").buffers()[2]
    words = np.frombuffer(padded, np.uint64, len(ids) * width // 8).reshape(len(ids), -1)
    # The length is hashed too, so that an id and the same id followed by zero bytes differ.
    found: NDArray[np.uint64] = pd.util.hash_array(lengths.astype(np.uint64))
    for column in range(words.shape[1]):
        # Padding is left out, so that a hash does not depend on the longest id of its window.
        own = lengths > 8 * column
        found[own] = pd.util.hash_array(found[own] ^ words[own, column])
    return found
