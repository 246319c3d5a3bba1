"""A comparison of two runs: how queries are grouped, which cases are shown, and how they read."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rayrank.reports import comparison_plot, comparison_table
from rayrank.reports.ablation import Procedure
from rayrank.reports.comparison import (
    ComparisonReport,
    QueryFacts,
    case,
    most_different,
    overall,
    rank_group,
    tables,
)

FEW = Procedure(resamples=100)
VALUES = np.array([1.0, 0.0, 0.5, 1.0, 0.0])
BASELINE = np.array([0.5, 1.0, 0.5, 0.0, 0.0])
FACTS = QueryFacts(
    ["person", "place", "person", "", "person"],
    np.array([3, 12, 3, 10, 1]),
    np.array([0, 1, 5, 0, 2]),
    np.array([1, 2, 3, 11, 0]),
)


@pytest.mark.parametrize(
    ("rank", "name"),
    [
        (-1, "no relevant passage"),
        (0, "out of reach"),
        (1, "1"),
        (2, "2 to 3"),
        (3, "2 to 3"),
        (4, "4 to 10"),
        (100, "31 to 100"),
        (101, "above 100"),
    ],
)
def test_a_rank_belongs_to_one_group(rank: int, name: str) -> None:
    assert rank_group(rank) == name


def test_queries_are_grouped_by_type_length_cut_words_and_first_stage_rank() -> None:
    found = tables(FACTS, VALUES, BASELINE, FEW)
    counts = {heading: {row.name: row.num_queries for row in rows} for heading, rows in found.items()}
    assert counts == {
        "query type": {"person": 3, "place": 1, "no type": 1},
        "query length, words": {"1": 1, "3": 2, "10 or more": 2},
        "words cut into pieces": {"none": 2, "1": 1, "2 or more": 2},
        "first-stage rank of the first relevant passage": {"1": 1, "2 to 3": 2, "11 to 30": 1, "out of reach": 1},
    }
    (place,) = [row for row in found["query type"] if row.name == "place"]
    assert (place.mean, place.baseline, place.losses) == (0.0, 1.0, 1)


def test_what_is_not_known_of_queries_has_no_table() -> None:
    found = tables(QueryFacts(None, None, FACTS.cut_words, None), VALUES, BASELINE, FEW)
    assert list(found) == ["words cut into pieces"]


def test_rare_query_types_are_one_group() -> None:
    types = [f"type{number}" for number in range(30)]
    zeros = np.zeros(30, np.int64)
    rows = tables(QueryFacts(types, None, zeros, zeros), np.ones(30), np.zeros(30), FEW)["query type"]
    assert len(rows) == 13
    assert rows[-1].name == "other types"
    assert sum(row.num_queries for row in rows) == 30


def test_the_largest_gains_and_losses_come_first_and_ties_are_left_out() -> None:
    assert most_different(VALUES, BASELINE, 2) == ([3, 0], [1])
    assert most_different(BASELINE, BASELINE, 2) == ([], [])


def example() -> ComparisonReport:
    query = {"query_id": "q1", "text": "who | built it", "query_type": "person"}
    texts = {"a": "Ada built it.", "b": "x " * 400, "c": "# <div> **relevant** [link](url) of snake_case"}
    gain = case(query, (1.0, 0.5), (["a", "b"], ["c", "a"]), ["a", "d"], texts)
    return ComparisonReport(
        "drbert", "bm25", "bm25", {"drbert": 0, "bm25": 2}, "MRR@10", "dev", FEW, overall(VALUES, BASELINE, FEW),
        tables(FACTS, VALUES, BASELINE, FEW), sorted((VALUES - BASELINE).tolist(), reverse=True), [gain], [],
    )  # fmt: skip


def test_a_case_shows_the_relevant_passage_that_the_better_run_ranks_highest() -> None:
    (gain,) = example().gains
    assert gain.relevant is not None
    assert (gain.relevant.passage_id, gain.rank, gain.baseline_rank) == ("a", 1, 2)
    assert [(hit.passage_id, hit.is_relevant) for hit in gain.baseline_top] == [("c", False), ("a", True)]


def test_a_passage_that_the_corpus_lacks_is_said_to_be_missing() -> None:
    query = {"query_id": "q1", "text": "what", "query_type": None}
    found = case(query, (1.0, 0.0), (["unknown"], []), ["unknown"], {})
    page = comparison_table.markdown(replace(example(), gains=[found]))
    assert "1. **relevant** (not in the corpus) (unknown)" in page


def test_a_query_without_relevant_passages_is_a_case_too() -> None:
    query = {"query_id": "q1", "text": "what", "query_type": None}
    found = case(query, (0.0, 0.0), ([], ["a"]), [], {"a": "text"})
    assert (found.relevant, found.rank, found.baseline_rank, found.query_type) == (None, 0, 0, "")


def test_the_page_has_every_group_and_case_and_cuts_long_texts() -> None:
    page = comparison_table.markdown(example())
    assert "| 10 or more | 2 |" in page
    assert "### who \\| built it" in page
    assert "1. \\# \\<div\\> \\*\\*relevant\\*\\* \\[link\\](url) of snake\\_case (c)" in page
    assert "bm25 has no passages for 2 of the queries, which count 0." in page
    assert "drbert has no passages" not in page
    assert "Relevant (bm25: rank 2, drbert: rank 1): Ada built it." in page
    assert "Largest losses" not in page
    assert max(map(len, page.splitlines())) < 400
    json.dumps(example().to_json())


def test_the_pictures_are_drawn() -> None:
    for picture in (comparison_plot.differences_png(example()), comparison_plot.groups_png(example())):
        assert picture.startswith(b"\x89PNG")
