"""Rows of ids of any length that share one array: whole corpora are truncated, joined and copied without a loop."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Windows:
    """Rows that are slices of one array and may overlap or leave ids out: row i is values[starts[i]:stops[i]]."""

    values: Ids
    starts: Rows
    stops: Rows

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row: int) -> Ids:
        return self.values[self.starts[row] : self.stops[row]]

    def __add__(self, other: "Windows") -> "Windows":
        """Return the rows of `self` and then those of `other`, over a copy of their ids."""
        parts = [self._trimmed(), other._trimmed()]
        size = len(parts[0].values)
        return Windows(
            np.concatenate([part.values for part in parts]),
            np.concatenate([parts[0].starts, parts[1].starts + size]),
            np.concatenate([parts[0].stops, parts[1].stops + size]),
        )

    def lengths(self, rows: Rows | slice = slice(None)) -> Rows:
        """Return the number of ids in some rows, or in all."""
        return self.stops[rows] - self.starts[rows]

    def take(self, rows: Rows | slice) -> "Windows":
        """Return some rows, over the same array."""
        return Windows(self.values, self.starts[rows], self.stops[rows])

    def truncate(self, lengths: Rows | int) -> "Windows":
        """Return the rows truncated to a length, or each to its own length, over the same array."""
        return Windows(self.values, self.starts, np.minimum(self.stops, self.starts + lengths))

    def flat(self) -> Ids:
        """Return the ids of all rows, one row after another."""
        return self.values[_positions(self.starts, self.lengths())]

    def _trimmed(self) -> "Windows":
        first, last = self.starts.min(initial=len(self.values)), self.stops.max(initial=0)
        return Windows(self.values[first:last], self.starts - first, self.stops - first)


class Ragged(Windows):
    """Rows that lie one after another: row i is values[offsets[i]:offsets[i + 1]]."""

    offsets: Rows

    def __init__(self, values: Ids, offsets: Rows) -> None:
        super().__init__(values, offsets[:-1], offsets[1:])
        object.__setattr__(self, "offsets", offsets)

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | Ids]) -> "Ragged":
        """Return the rows of a sequence, copied into one array."""
        values = np.concatenate([np.asarray(row, np.int32) for row in rows] or [np.empty(0, np.int32)])
        return cls(values, np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64))

    @classmethod
    def from_arrow(cls, column: pa.ChunkedArray) -> "Ragged":
        """Return a column of lists, without a copy where it has one chunk."""
        lists = column.combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) else lists
        offsets = lists.offsets.to_numpy()
        return cls(lists.values.to_numpy(), offsets.astype(np.int64, copy=False))

    def flat(self) -> Ids:
        return self.values[self.offsets[0] : self.offsets[-1]]


def join(*parts: Windows | int) -> Ragged:
    """Concatenate the parts row by row; a part that is a single id is repeated in every row."""
    if len(parts) == 1 and isinstance(parts[0], Windows):
        return Ragged(parts[0].flat(), np.concatenate([[0], np.cumsum(parts[0].lengths())]))
    (num_rows,) = {len(part) for part in parts if isinstance(part, Windows)}
    if num_rows == 1:
        # One row, as for the query of a request: ten times faster than the general case below.
        return Ragged.of([np.concatenate([part[0] if isinstance(part, Windows) else (part,) for part in parts])])
    lengths = [part.lengths() if isinstance(part, Windows) else np.ones(num_rows, np.int64) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(sum(lengths))])
    values, starts = np.empty(offsets[-1], np.int32), offsets[:-1]
    for part, sizes in zip(parts, lengths, strict=True):
        if isinstance(part, Windows):
            values[_positions(starts, sizes)] = part.flat()
        else:
            values[starts] = part
        starts = starts + sizes
    return Ragged(values, offsets)


def _positions(starts: Rows, lengths: Rows) -> Rows:
    """Return the positions of many slices of an array, one slice after another."""
    before = np.cumsum(lengths) - lengths
    positions: Rows = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return positions
