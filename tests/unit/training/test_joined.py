"""Candidates are joined to rows file by file, and the result does not depend on how they are divided into files."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.data.ids import PairLookup
from rayrank.training.data import Split, _join

QUERIES, PASSAGES = [f"q{number}" for number in range(6)], [f"p{number}" for number in range(50)]
LOOKUP = PairLookup(pa.array(QUERIES), pa.array(PASSAGES))
# Nobody judged q2 and q4, and q5 has nothing relevant.
JUDGED = [(3, 7, 1), (1, 4, 1), (1, 2, 2), (0, 9, 1), (5, 1, 0)]


def judgments(rows: list[tuple[int, int, int]]) -> pa.Table:
    named = [(QUERIES[query], PASSAGES[passage], relevance, "train") for query, passage, relevance in rows]
    return pa.Table.from_pylist([dict(zip(JUDGMENTS.names, row, strict=True)) for row in named], JUDGMENTS)


def candidates(rows: list[tuple[int, int, int]]) -> pa.Table:
    named = [(QUERIES[query], PASSAGES[passage], rank, 0.0) for query, passage, rank in rows]
    return pa.Table.from_pylist([dict(zip(CANDIDATES.names, row, strict=True)) for row in named], CANDIDATES)


def listed(split: Split) -> dict[int, list[int]]:
    return {int(query): split.candidates[place].tolist() for place, query in enumerate(split.queries)}


LISTS = st.lists(st.lists(st.integers(0, 49), unique=True, max_size=12), min_size=6, max_size=6)


@given(LISTS, st.randoms(use_true_random=False), st.integers(1, 5))
def test_every_judged_query_has_its_candidates_best_first(lists: list[list[int]], rng, num_files: int) -> None:  # type: ignore[no-untyped-def]
    rows = [(query, passage, rank) for query, found in enumerate(lists) for rank, passage in enumerate(found, 1)]
    rng.shuffle(rows)
    # Whole queries a file, in any order within it.
    files = [[row for row in rows if row[0] % num_files == number] for number in range(num_files)]

    split = _join(LOOKUP, judgments(JUDGED), map(candidates, files))

    assert listed(split) == {query: lists[query] for query in (0, 1, 3)}
    assert [split.positives[place].tolist() for place in range(3)] == [[9], [4, 2], [7]]
    assert split.candidates.values.dtype == np.int32


@pytest.mark.parametrize(
    ("relevant_from", "positives"), [(1, {0: [9], 1: [4, 2], 3: [7]}), (2, {1: [2]}), (3, {})], ids=str
)
def test_positives_have_at_least_the_relevant_grade(relevant_from: int, positives: dict[int, list[int]]) -> None:
    split = _join(LOOKUP, judgments(JUDGED), [candidates([(1, 2, 1), (1, 4, 2)])], relevant_from)

    assert {int(query): split.positives[place].tolist() for place, query in enumerate(split.queries)} == positives
    if relevant_from == 1:
        assert split.grades
        assert [split.grades[place].tolist() for place in range(3)] == [[1], [1, 2], [1]]
    else:
        assert split.grades is None
    if relevant_from == 2:
        # Judged, but with too low a grade: a negative.
        assert split.negatives(0).tolist() == [4]


@given(LISTS, st.integers(1, 7))
def test_the_candidates_of_a_query_may_be_in_several_files(lists: list[list[int]], size: int) -> None:
    deepest = range(1, 13)
    rows = [
        (query, lists[query][rank - 1], rank) for rank in deepest for query in range(6) if rank <= len(lists[query])
    ]
    files = (candidates(rows[start : start + size]) for start in range(0, len(rows), size))

    assert listed(_join(LOOKUP, judgments(JUDGED), files)) == {query: lists[query] for query in (0, 1, 3)}


@pytest.mark.parametrize("files", [[], [[]]])
def test_a_split_without_candidates_has_empty_lists(files: list[list[tuple[int, int, int]]]) -> None:
    assert listed(_join(LOOKUP, judgments(JUDGED), map(candidates, files))) == {0: [], 1: [], 3: []}
    assert len(_join(LOOKUP, judgments([]), map(candidates, files)).queries) == 0
