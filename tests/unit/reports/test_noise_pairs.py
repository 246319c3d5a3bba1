import csv
import io

import pyarrow as pa
import pytest

from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.reports.noise_pairs import csv_bytes, passage_ids, suspicious, with_texts
from rayrank.scores.noise_filter import probabilities

SCORED = pa.table(
    [
        ["q1", "q1", "q1", "q1", "q2", "q2", "q3"],
        ["a", "b", "c", "d", "a", "b", "a"],
        [1, 2, 3, 4, 1, 2, 1],
        [1.0, 40.0, 2.0, 41.0, 3.0, 50.0, -1.0],
    ],
    schema=CANDIDATES,
)
JUDGED = pa.table(
    [["q1", "q1", "q2", "q2"], ["a", "c", "missing", "b"], [1, 2, 1, 0], ["train"] * 4],
    schema=JUDGMENTS,
)
TYPES = pa.table({"query_id": ["q1", "q2"], "query_type": ["person", "entity"]})
ODD = {
    "a": 'He said "no", twice\nand\r\nleft;\ttab',
    "b": "",
    "c": "naïve 日本 \U0001f600",
    "d": "\rlone return, =1+1",
    "missing": "  spaces  ",
}


def test_a_positive_is_a_passage_with_a_relevant_grade():
    names = ["positive_id", "positive_probability"]
    low, high = (suspicious([SCORED], JUDGED, TYPES, relevant_from=grade).select(names).to_pylist() for grade in (1, 2))
    # q1 has a (grade 1) and c (grade 2, the higher score), q2 one of grade 1 that was not scored.
    assert [row["positive_id"] for row in low] == ["c", "c", "missing", None]
    assert [row["positive_id"] for row in high] == ["c", "c", None, None]


def test_unjudged_pairs_are_sorted_by_score_and_judged_ones_are_left_out():
    found = suspicious([SCORED], JUDGED, TYPES)
    pairs = list(zip(found["query_id"].to_pylist(), found["passage_id"].to_pylist(), strict=True))
    # Both probabilities of q1 round to 1; their logits decide. (q2, b) was judged, if as irrelevant.
    assert pairs == [("q1", "d"), ("q1", "b"), ("q2", "a"), ("q3", "a")]
    assert found["probability"].to_pylist() == pytest.approx([1.0, 1.0, *probabilities([3.0, -1.0])])
    assert found["rank"].to_pylist() == [4, 2, 1, 1]
    assert found["query_type"].to_pylist() == ["person", "person", "entity", ""]


def test_each_pair_is_listed_with_the_best_positive_of_its_query():
    found = suspicious([SCORED], JUDGED, None)
    assert found["positive_id"].to_pylist() == ["c", "c", "missing", None]
    assert found["positive_probability"].to_pylist()[1:] == [pytest.approx(probabilities(2.0)), None, None]
    assert passage_ids(found) == ["a", "b", "c", "d", "missing"]


@pytest.mark.parametrize("count", [1, 2, 3, 10])
def test_the_result_does_not_depend_on_parts_and_their_order(count):
    whole = suspicious([SCORED], JUDGED, TYPES, count)
    assert whole.num_rows == min(count, 4)
    parts = [SCORED.slice(4), SCORED.slice(0, 0), SCORED.slice(0, 4)]
    assert suspicious(parts, JUDGED, TYPES, count).to_pylist() == whole.to_pylist()


def test_ties_are_broken_by_rank_then_ids():
    tied = pa.table([["q2", "q1", "q1"], ["a", "b", "a"], [1, 1, 2], [1.0] * 3], schema=CANDIDATES)
    found = suspicious([tied], JUDGED.slice(0, 0), None)
    assert [*zip(found["query_id"].to_pylist(), found["passage_id"].to_pylist(), strict=True)] == [
        ("q1", "b"),
        ("q2", "a"),
        ("q1", "a"),
    ]


def test_csv_holds_any_text():
    queries = {"q1": "who\n\n?", "q2": '"', "q3": ","}
    table = with_texts(suspicious([SCORED], JUDGED, TYPES), queries, ODD)
    back = list(csv.DictReader(io.StringIO(csv_bytes(table).decode(), newline="")))
    assert list(back[0]) == table.column_names
    for written, row in zip(back, table.to_pylist(), strict=True):
        for name, value in row.items():
            if isinstance(value, float):
                assert float(written[name]) == value
            else:
                assert written[name] == ("" if value is None else str(value))
    assert [row["passage"] for row in back] == [ODD["d"], ODD["b"], ODD["a"], ODD["a"]]
    assert [row["positive"] for row in back] == [ODD["c"], ODD["c"], ODD["missing"], ""]


def test_without_suspicious_pairs_the_csv_has_only_its_header():
    table = with_texts(suspicious([SCORED.slice(0, 1)], JUDGED, TYPES), {}, {})
    assert csv_bytes(table).decode().count("\n") == 1
