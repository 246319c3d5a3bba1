"""The lookup finds the row of every id, in any column type and chunk layout."""

import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st

from rayrank.data import ids as ids_module
from rayrank.data.ids import Lookup, PairLookup

# Few characters make ids that differ in one place, or in how often a character ends them.
IDS = st.text("a0é\0", max_size=20) | st.text(max_size=40)


@given(st.lists(IDS, unique=True), st.lists(IDS))
@example(["a", "b\0"], [])
def test_known_ids_have_their_rows_and_unknown_ids_minus_1(ids: list[str], others: list[str]) -> None:
    wanted = [*reversed(ids), *others]

    rows = Lookup(pa.array(ids, pa.string()))(pa.array(wanted, pa.string())).tolist()

    assert rows == [ids.index(name) if name in ids else -1 for name in wanted]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_ids_are_found_in_any_column_type_and_chunk_layout(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = [f"passage {'x' * (number % 30)}{number}" for number in range(100)]
    rows = Lookup(pa.array(ids))
    monkeypatch.setattr(ids_module, "WINDOW", 7)

    pieces = pa.chunked_array([pa.array(ids[:45], kind), pa.array([], kind), pa.array(ids[45:], kind).slice(3)])

    assert rows(pieces).tolist() == [*range(45), *range(48, 100)]
    assert rows(pa.chunked_array([], kind)).tolist() == []


def test_numeric_ids_of_any_length_are_told_apart() -> None:
    for width in (1, 7, 8, 9, 15, 16, 17, 40):
        ids = pa.array([f"{number:0{width}d}" for number in range(20_000)])
        assert Lookup(ids)(ids).tolist() == list(range(20_000))


def test_pairs_of_one_query_need_not_be_adjacent() -> None:
    pairs = pa.table({"query_id": ["q2", "q1", "q2", "q9"], "passage_id": ["b", "a", "z", "a"]})

    queries, passages = PairLookup(pa.array(["q1", "q2"]), pa.array(["a", "b"]))(pairs)

    assert queries.tolist() == [1, 0, 1, -1]
    assert passages.tolist() == [1, 0, -1, 0]
