"""Grouping and ranking the rows of runs and judgments by query, in numpy."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def by_query(table: pa.Table) -> tuple[list[str], NDArray[np.int64]]:
    """Return the table's query ids in order of appearance, and each row's index among them."""
    encoded = table["query_id"].dictionary_encode().combine_chunks()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def is_sorted(values: NDArray[np.integer]) -> bool:
    """Return whether no value is smaller than the one before it."""
    return bool(np.all(values[1:] >= values[:-1]))


def long_column(table: pa.Table, name: str) -> pa.Array:
    """Return a text column as one array with 64-bit offsets, because the ids of a run may exceed 2 GB."""
    return table[name].cast(pa.large_string()).combine_chunks()


def ranked(table: pa.Table) -> pa.Table:
    """Return candidates sorted and ranked by score within each query; ties keep the order of their old ranks."""
    _, of_query = by_query(table)
    order = np.lexsort((table["rank"].to_numpy(), -table["score"].to_numpy(), of_query))
    ranks = pa.array(ranks_within_query(of_query[order]), pa.int32())
    return table.take(order).set_column(2, table.schema.field("rank"), ranks)


def ranks_within_query(of_query: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return each row's rank within its query, from 1 on; the rows of a query must be adjacent."""
    starts = np.flatnonzero(np.diff(of_query, prepend=-1))
    return np.arange(1, len(of_query) + 1) - np.repeat(starts, np.diff(np.append(starts, len(of_query))))
