"""What the encoder reads, put together from stored ids: `[CLS] type [SEP] query [SEP] passage [SEP]`, no tokeniser."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Ragged:
    """Many short rows of ids in one array; row i is values[offsets[i]:offsets[i + 1]]."""

    values: Ids
    offsets: Rows

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | Ids]) -> "Ragged":
        """Return rows given one by one."""
        values = np.concatenate([np.asarray(row, np.int32) for row in rows] or [np.empty(0, np.int32)])
        return cls(values, np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64))

    @classmethod
    def from_arrow(cls, column: pa.ChunkedArray) -> "Ragged":
        """Return a column of lists, without a copy where it is in one piece."""
        lists = column.combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        offsets = lists.offsets.to_numpy()
        return cls(lists.values.to_numpy(), offsets.astype(np.int64, copy=False))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __add__(self, other: "Ragged") -> "Ragged":
        """Return these rows and then those."""
        offsets = np.concatenate([self.offsets, self.offsets[-1] + other.offsets[1:] - other.offsets[0]])
        ends = (ragged.values[ragged.offsets[0] : ragged.offsets[-1]] for ragged in (self, other))
        return Ragged(np.concatenate(list(ends)), offsets - offsets[0])

    def since(self, row: int) -> "Ragged":
        """Return the rows from one on."""
        return Ragged(self.values, self.offsets[row:])

    def lengths(self, rows: Rows) -> Rows:
        return self.offsets[rows + 1] - self.offsets[rows]

    def __getitem__(self, row: int) -> Ids:
        return self.values[self.offsets[row] : self.offsets[row + 1]]


class Pairs(NamedTuple):
    """Inputs laid end to end: pair i is ids[offsets[i]:offsets[i + 1]], its first `prefix[i]` ids of token type 0."""

    ids: Ids
    offsets: Rows
    prefix: Rows

    @property
    def lengths(self) -> Rows:
        return np.diff(self.offsets)

    def token_types(self) -> Ids:
        """Return 0 for type and query with their separators, 1 for the passage."""
        within = np.arange(len(self.ids)) - np.repeat(self.offsets[:-1], self.lengths)
        return (within >= np.repeat(self.prefix, self.lengths)).astype(np.int32)


class SpecialIds(NamedTuple):
    """The two signs that hold an input together."""

    cls: int
    sep: int


def prefixes(queries: Ragged, types: Ragged | None, special: SpecialIds, query_length: int) -> Ragged:
    """Return `[CLS] type [SEP] query [SEP]` a query, or without the type where there is none."""
    rows = []
    for row in range(len(queries)):
        kind = [] if types is None else [*types[row].tolist(), special.sep]
        rows.append([special.cls, *kind, *queries[row][:query_length].tolist(), special.sep])
    return Ragged.of(rows)


def pair_lengths(
    starts: Ragged, passages: Ragged, query_rows: Rows, passage_rows: Rows, length: int
) -> tuple[Rows, Rows]:
    """Return how many ids of each pair's prefix and passage fit its input; the passage is what gets cut."""
    prefix = starts.lengths(query_rows)
    body = np.minimum(passages.lengths(passage_rows), length - 1 - prefix)
    if len(body) and body.min() < 0:
        raise ValueError(f"an input of {length} ids has no room for a prefix of {prefix.max()}")
    return prefix, body
