"""Ranks of passages that share pieces: which cases are clearest, what the groups count, and what pictures show."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from rayrank.reports import cut_words_plot, cut_words_table
from rayrank.reports.ablation import Procedure
from rayrank.reports.cut_words import (
    MOST_COLUMNS,
    Attention,
    Case,
    CutWordsReport,
    Pairs,
    SharedWord,
    clearest,
    query_slices,
    rank_groups,
    shown_columns,
)

FEW = Procedure(resamples=100)
PAIRS = Pairs(
    queries=np.array([0, 0, 0, 1, 1, 2]),
    passages=np.array([0, 1, 2, 3, 4, 5]),
    share=np.array([True, True, False, True, False, True]),
    ranks=np.array([40, 9, 3, 2, 30, 1]),
    plain_ranks=np.array([4, 2, 6, 2, 5, 50]),
)


def test_groups_count_pairs_and_average_their_ranks() -> None:
    found = {group.name: group for group in rank_groups(PAIRS, top=10)}

    every = found["share pieces, all"]
    assert (every.num_queries, every.num_pairs) == (3, 4)
    assert every.mean_rank == (40 + 9 + 2 + 1) / 4
    assert every.plain_mean_rank == (4 + 2 + 2 + 50) / 4
    assert (every.num_lower, every.num_equal, every.num_higher) == (2, 1, 1)
    plain_top = found["share pieces, top 10 without STRM"]
    assert (plain_top.num_pairs, plain_top.num_lower, plain_top.num_higher) == (3, 2, 0)
    top = found["share pieces, top 10 with STRM"]
    assert (top.num_pairs, top.num_lower, top.num_equal, top.num_higher) == (3, 1, 1, 1)
    others = found["share none, top 10 without STRM"]
    assert (others.num_pairs, others.mean_rank, others.plain_mean_rank) == (2, 16.5, 5.5)


def test_a_group_without_pairs_has_no_mean() -> None:
    none = replace(PAIRS, share=np.zeros(6, np.bool_))
    group = rank_groups(none, top=10)[0]
    assert (group.num_pairs, group.mean_rank, group.plain_mean_rank) == (0, None, None)


def test_the_clearest_cases_change_their_rank_most_times_and_are_one_of_a_query() -> None:
    # Pair 0 falls tenfold; pair 1 of the same query 4.5-fold; pair 3 stays; pairs 2 and 4 share nothing.
    assert clearest(PAIRS, top=10, count=5) == ([0], [5])
    # Pair 0 has the rank 4, which is not high.
    assert clearest(PAIRS, top=3, count=5) == ([1], [5])
    assert clearest(PAIRS, top=10, count=0) == ([], [])


def test_no_two_of_the_clearest_cases_have_the_same_passage() -> None:
    every = replace(PAIRS, queries=np.arange(6), share=np.ones(6, np.bool_))
    assert clearest(every, top=10, count=5)[0] == [0, 4, 1]
    assert clearest(replace(every, passages=np.array([0, 1, 2, 3, 0, 5])), top=10, count=5)[0] == [0, 1]


def test_queries_are_compared_with_and_without_cut_words() -> None:
    slices = query_slices(np.array([1.0, 0.5, 0.0]), np.array([0.5, 0.5, 1.0]), np.array([True, True, False]), FEW)
    assert [(each.name, each.num_queries, each.mean, each.baseline) for each in slices] == [
        ("all", 3, 0.5, pytest.approx(2 / 3)),
        ("with cut words", 2, 0.75, 0.5),
        ("without cut words", 1, 0.0, 1.0),
    ]


@pytest.mark.parametrize(
    ("num_pieces", "shared", "expected"),
    [
        (12, [3], range(12)),
        (100, [], range(MOST_COLUMNS)),
        (100, [0, 5], range(MOST_COLUMNS)),
        (100, [50], range(30, 70)),
        (100, [99], range(60, 100)),
        # Two shared pieces fit, the third is too far away.
        (200, [10, 100, 120], range(90, 130)),
    ],
)
def test_long_passages_are_shown_around_the_shared_pieces(
    num_pieces: int, shared: list[int], expected: range
) -> None:  # fmt: skip
    found = shown_columns(num_pieces, shared)
    assert len(found) == min(num_pieces, MOST_COLUMNS)
    assert abs(found.start - expected.start) <= 1
    assert len(set(shared).intersection(found)) == len(set(shared).intersection(expected))


def example() -> CutWordsReport:
    word = SharedWord("bogue", ["bog", "##ue"], [["bog", "##us"]])
    case = Case("q1", "what | is a bogue", "p1", "A *bogus* claim.", False, [word], 137, 1, 0.02, 0.91)
    attention = Attention(
        ["a", "bog", "##ue"], ["a", "bog", "##us", "$1$"], [1, 2], [1],
        [[0.1, 0.0, 0.2, 0.1]] * 3, [[0.1, 0.4, 0.2, 0.1]] * 3, 0, 4,
    )  # fmt: skip
    slices = query_slices(np.array([1.0, 0.0]), np.array([0.5, 0.0]), np.array([True, False]), FEW)
    return CutWordsReport(
        "DR-BERT", "mask", "test", "MRR@10", 10, "calibrated on dev", "last", FEW, 1000, slices,
        rank_groups(PAIRS, 10), [case], [replace(case, rank=1, plain_rank=4)], [attention],
    )  # fmt: skip


def test_the_page_has_the_aggregate_before_the_cases_and_both_directions() -> None:
    page = cut_words_table.markdown(example())

    assert page.index("share pieces, all") < page.index("Ranked lower with STRM") < page.index("The other way")
    row = next(line for line in page.splitlines() if line.startswith("| what"))
    cells = row.replace(r"\|", "").strip("| ").split(" | ")
    assert cells[1:] == [r"bogue: bog \#\#ue", r"bog \#\#us", "1", "137", "0.910", "0.020"]
    assert "the clearest of 2 in the top 10 without STRM" in page
    assert "the clearest of 1 in the top 10 with STRM" in page
    assert "![case 1](attention-1.png)" in page


def test_the_report_is_json_and_the_picture_an_image() -> None:
    report = example()

    assert json.loads(json.dumps(report.to_json()))["lowered"][0]["plain_rank"] == 1
    (picture,) = cut_words_plot.attention_pngs(report)
    assert Image.open(io.BytesIO(picture)).width > 300


def test_both_panels_have_one_colour_scale_and_mark_the_same_pieces() -> None:
    report = example()

    panels = cut_words_plot.attention_figure(report.lowered[0], report.attention[0]).axes[:2]

    assert [panel.images[0].get_clim() for panel in panels] == [(0, 0.4), (0, 0.4)]
    assert "rank 1," in panels[0].get_title(loc="left")
    assert "rank 137," in panels[1].get_title(loc="left")
    for panel in panels:
        marked = [label.get_text() for label in panel.get_xticklabels() if label.get_fontweight() == "bold"]
        assert marked == ["bog"]
