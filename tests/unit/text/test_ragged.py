"""Rows of ids in one array are cut, chosen and joined as lists of lists would be."""

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from rayrank.text.ragged import Ragged, Windows, join

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=8)


def lists(rows: Windows) -> list[list[int]]:
    return [rows[row].tolist() for row in range(len(rows))]


def test_a_column_of_lists_is_read_whole_and_sliced() -> None:
    column = pa.chunked_array([pa.array([[1], [2, 3], [], [4, 5, 6]], pa.large_list(pa.int32()))])

    assert lists(Ragged.from_arrow(column)) == [[1], [2, 3], [], [4, 5, 6]]
    assert lists(Ragged.from_arrow(column.slice(1, 3))) == [[2, 3], [], [4, 5, 6]]


def test_windows_of_a_document_may_overlap() -> None:
    document = np.arange(10, dtype=np.int32)
    windows = Windows(document, np.array([0, 3, 6]), np.array([5, 8, 10]))

    assert lists(windows) == [[0, 1, 2, 3, 4], [3, 4, 5, 6, 7], [6, 7, 8, 9]]
    assert windows.lengths().tolist() == [5, 5, 4]
    assert lists(join(50, windows.truncate(2), 51)) == [[50, 0, 1, 51], [50, 3, 4, 51], [50, 6, 7, 51]]


def test_adding_rows_from_one_on_to_others_keeps_no_ids_of_the_rows_before() -> None:
    rng = random.Random(0)
    first, second = ([[rng.randrange(99) for _ in range(rng.randint(0, 5))] for _ in range(7)] for _ in range(2))
    for row in range(8):
        joined = Ragged.of(first).take(slice(row, None)) + Ragged.of(second).take(slice(2, None))
        assert lists(joined) == first[row:] + second[2:]
        assert len(joined.values) == sum(map(len, first[row:] + second[2:]))


@given(ROWS, st.data())
def test_rows_are_cut_and_chosen_as_lists_are(rows: list[list[int]], data: st.DataObject) -> None:
    ragged = Ragged.of(rows)
    sizes = data.draw(st.lists(st.integers(0, 7), min_size=len(rows), max_size=len(rows)))
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []

    assert ragged.lengths().tolist() == [len(row) for row in rows]
    assert lists(ragged.truncate(3)) == [row[:3] for row in rows]
    assert lists(ragged.truncate(np.array(sizes, np.int64))) == [
        row[:size] for row, size in zip(rows, sizes, strict=True)
    ]
    assert lists(ragged.take(np.array(chosen, np.int64))) == [rows[row] for row in chosen]


@given(st.lists(st.tuples(*[st.lists(st.integers(0, 99), max_size=6)] * 3), max_size=8))
def test_parts_are_joined_row_by_row(rows: list[tuple[list[int], ...]]) -> None:
    first, second, third = (Ragged.of([row[part] for row in rows]) for part in range(3))

    joined = join(101, first, 102, second.truncate(2), third)

    assert lists(joined) == [[101, *a, 102, *b[:2], *c] for a, b, c in rows]


def test_parts_of_different_numbers_of_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="unpack"):
        join(Ragged.of([[1], [2]]), Ragged.of([[3]]))
