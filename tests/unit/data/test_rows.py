import pyarrow as pa

from rayrank.core.records import CANDIDATES
from rayrank.data.rows import ranked


def table(rows: list[tuple[str, str, int, float]]) -> pa.Table:
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), CANDIDATES, strict=True)]
    return pa.Table.from_arrays(columns, schema=CANDIDATES)


def test_rows_are_numbered_by_score_within_their_query() -> None:
    found = ranked(table([("b", "x", 1, 0.1), ("a", "y", 1, -2.0), ("b", "z", 2, 0.7), ("a", "x", 2, 3.0)]))

    assert [(row["query_id"], row["passage_id"], row["rank"]) for row in found.to_pylist()] == [
        ("b", "z", 1),
        ("b", "x", 2),
        ("a", "x", 1),
        ("a", "y", 2),
    ]
    assert found.schema == CANDIDATES


def test_equal_scores_stay_in_the_first_stages_order() -> None:
    found = ranked(table([("a", "third", 3, 1.0), ("a", "first", 1, 1.0), ("a", "second", 2, 1.0)]))

    assert found["passage_id"].to_pylist() == ["first", "second", "third"]
    assert found["rank"].to_pylist() == [1, 2, 3]


def test_scattered_rows_of_a_query_are_grouped() -> None:
    found = ranked(table([("a", "x", 1, 0.0), ("b", "x", 1, 0.0), ("a", "y", 2, 1.0)]))

    assert [(row["query_id"], row["rank"]) for row in found.to_pylist()] == [("a", 1), ("a", 2), ("b", 1)]
