import json
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.measure.metrics import parse, per_query
from rayrank.measure.places import places, shares
from rayrank.measure.significance import compare
from rayrank.reports import first_stages_plot, first_stages_table
from rayrank.reports.ablation import Procedure
from rayrank.reports.first_stages import (
    Cost,
    FirstStageReport,
    Measured,
    RankedBy,
    Tops,
    split_report,
    top_rows,
)

QUICK = Procedure(resamples=200)
RELEVANT = {"q1": ["a"], "q2": ["b", "c"], "q3": ["d"], "q4": ["e"]}
SPARSE = {"q1": ["a", "x", "y"], "q2": ["x", "b", "y"], "q3": ["x", "y", "z"]}
DENSE = {"q1": ["x", "a"], "q2": ["c", "b"], "q3": ["z", "d"], "q4": ["u", "v"]}


def rows(found):
    """A run from the passages of each query, best first."""
    lines = [(q, p, rank, -float(rank)) for q, passages in found.items() for rank, p in enumerate(passages, 1)]
    return pa.table([list(column) for column in zip(*lines, strict=True)], schema=CANDIDATES)


def judged(relevant):
    lines = [(q, p, 1, "dev") for q, passages in relevant.items() for p in passages]
    return pa.table([list(column) for column in zip(*lines, strict=True)], schema=JUDGMENTS)


QRELS = judged(RELEVANT)


def measured(found):
    return Measured(places(QRELS, rows(found)), top_rows(rows(found)))


def report(**runs):
    best = {q: sorted(passages, key=lambda p: p not in RELEVANT[q]) for q, passages in SPARSE.items()}
    ranker = RankedBy("sparse", "ranker", places(QRELS, rows(best)))
    runs = runs or {"sparse": measured(SPARSE), "dense": measured(DENSE), "file": None}
    part = split_report("dev", QRELS, runs, [ranker], "sparse", procedure=QUICK)
    costs = {"sparse": Cost(1234.5, 8_100_000), "dense": Cost(10.0, 999), "file": Cost(None, None)}
    return FirstStageReport("sparse", [part], costs, ["dense"], QUICK)


def test_places_on_a_hand_worked_run():
    found = places(QRELS, rows(SPARSE))

    assert found.depth == 3
    assert found.first.tolist() == [1, 2, 0, 0]
    assert found.reciprocal.tolist() == [1, 1 / 2, 0, 0]
    # q1 has its one passage first; q2 has one of two, at rank 2.
    assert found.recall == pytest.approx({1: 1 / 4, 2: (1 + 1 / 2) / 4, 3: (1 + 1 / 2) / 4})


@pytest.mark.parametrize("seed", range(5))
def test_places_are_those_of_an_evaluation_also_where_scores_are_equal(seed):
    rng = np.random.default_rng(seed)
    passages = [f"p{number}" for number in range(30)]
    lines = [
        (f"q{query}", passages[chosen], rank, float(rng.integers(0, 4)))
        for query in range(40)
        for rank, chosen in enumerate(rng.permutation(30)[: rng.integers(1, 25)], 1)
    ]
    run = pa.table([list(column) for column in zip(*lines, strict=True)], schema=CANDIDATES)
    graded = [(f"q{query}", p, int(rng.integers(0, 3)), "dev") for query in range(35, 80, 3) for p in passages[:9]]
    qrels = pa.table([list(column) for column in zip(*graded, strict=True)], schema=JUDGMENTS)

    found = places(qrels, run, relevant_from=2)

    metrics = {name: parse(name) for name in ("MRR@10", "MRR", *(f"R@{cutoff}" for cutoff in found.recall))}
    expected = per_query(qrels, run, metrics, relevant_from=2)
    assert found.reciprocal.tolist() == expected.values["MRR@10"].tolist()
    reached = found.first > 0
    assert (1 / found.first[reached]).tolist() == expected.values["MRR"][reached].tolist()
    assert not expected.values["MRR"][~reached].any()
    means = expected.means()
    assert found.recall == {cutoff: means[f"R@{cutoff}"] for cutoff in found.recall}


def test_a_run_without_any_relevant_passage_has_every_query_out_of_reach():
    found = places(QRELS, rows({"q1": ["x", "y"], "other": ["a"]}))
    assert (found.first.tolist(), found.recall, found.depth) == ([0, 0, 0, 0], {1: 0, 2: 0}, 2)


def test_a_run_without_rows_has_every_query_out_of_reach():
    for empty in (CANDIDATES.empty_table(), rows(SPARSE).slice(0, 0)):
        found = places(QRELS, empty)
        assert (found.first.tolist(), found.recall, found.depth) == ([0, 0, 0, 0], {1: 0}, 0)
    assert shares(found.first).out_of_reach == 1


def test_shares_on_hand_worked_ranks():
    found = shares(np.array([0, 1, 1, 2, 10, 11, 500, 0]))

    assert (found.out_of_reach, found.below_top, found.in_top, found.first) == (2 / 8, 2 / 8, 2 / 8, 2 / 8)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50))
def test_the_shares_of_all_places_add_up_to_one(ranks):
    found = shares(np.array(ranks))
    assert found.out_of_reach + found.below_top + found.in_top + found.first == pytest.approx(1)


@pytest.mark.parametrize(
    ("depth", "cutoffs"),
    [
        (1, [1]),
        (7, [1, 2, 5, 7]),
        (10, [1, 2, 5, 10]),
        (60, [1, 2, 5, 10, 20, 50, 60]),
        (100, [1, 2, 5, 10, 20, 50, 100]),
    ],
)
def test_recall_is_never_reported_beyond_the_depth(depth, cutoffs):
    run = rows({"q1": [f"p{number}" for number in range(depth)], "q2": ["b"]})

    found = places(QRELS, run)

    assert (found.depth, list(found.recall)) == (depth, cutoffs)


def test_the_top_that_two_runs_share_is_a_share_of_the_longer_list():
    tops = Tops.of([rows(SPARSE), rows(DENSE)], QRELS)

    # q1 shares both of x and a, q2 shares b, q3 shares z: of three passages each; q4 is empty in one run.
    assert tops.common(0, 1, 10) == pytest.approx((2 / 3 + 1 / 3 + 1 / 3 + 0) / 4)
    # In the top 1: a, x; x, c; x, z; nothing, u.
    assert tops.common(0, 1, 1) == 0
    # In the top 2: a, x are shared; b is; nothing; nothing.
    assert tops.common(0, 1, 2) == pytest.approx((2 / 2 + 1 / 2 + 0 + 0) / 4)
    assert tops.common(1, 0, 2) == tops.common(0, 1, 2)


def test_a_run_shares_all_passages_with_itself_and_empty_queries_do_not_count():
    assert Tops.of([rows(SPARSE), rows(SPARSE)], QRELS).common(0, 1, 10) == 1


def test_queries_without_a_judgment_do_not_count_in_the_overlap():
    more = {**SPARSE, "unjudged": ["x"]}
    tops = Tops.of([rows(more), rows(DENSE)], QRELS)
    assert tops.common(0, 1, 10) == Tops.of([rows(SPARSE), rows(DENSE)], QRELS).common(0, 1, 10)


def test_a_split_on_hand_worked_runs():
    (part,) = report().splits

    sparse, dense = part.first_stages
    assert (part.num_queries, part.num_without_relevant, part.missing) == (4, 0, ["file"])
    assert (sparse.out_of_reach, dense.out_of_reach) == (2 / 4, 1 / 4)
    assert (sparse.mrr.mean, dense.mrr.mean) == ((1 + 1 / 2) / 4, (1 / 2 + 1 + 1 / 2) / 4)
    assert (sparse.comparison, sparse.p_holm) == (None, None)
    expected = compare(np.array([0.5, 1, 0.5, 0]), np.array([1, 0.5, 0, 0]), "randomisation", 200, QUICK.seed)
    assert dense.comparison == expected
    assert dense.p_holm == expected.p_value
    # Only q3 is within reach of one alone.
    assert part.only == [[0, 0], [1 / 4, 0]]
    # The depth of three passages is less than 10 and 100, and two passages is the depth of the shallower run.
    assert list(part.common) == [3]
    assert part.common[3][0][1] == part.common[3][1][0] == pytest.approx((2 / 2 + 1 / 2 + 0 + 0) / 4)


def test_rankers_follow_the_first_stage_whose_candidates_they_rank_and_reach_as_much():
    ranked = report().splits[0].ranked

    assert [(row.candidates, row.ranked_by) for row in ranked] == [
        ("sparse", "sparse"),
        ("sparse", "ranker"),
        ("dense", "dense"),
    ]
    own, ranker, _ = ranked
    assert own.shares.out_of_reach == ranker.shares.out_of_reach == 1 - own.perfect == 1 - ranker.perfect == 2 / 4
    # The ranker puts a relevant passage first wherever there is one, so it is a perfect ranker.
    assert ranker.mrr == ranker.perfect
    assert ranker.shares.first == 2 / 4


def test_queries_without_a_relevant_grade_are_counted_and_out_of_reach():
    part = split_report("dev", QRELS, {"sparse": measured(SPARSE)}, [], "sparse", relevant_from=2, procedure=QUICK)
    assert part.num_without_relevant == 4


def test_a_split_that_the_reference_has_no_rows_of_has_no_p_values():
    (part,) = report(sparse=None, dense=measured(DENSE)).splits
    assert [stage.p_holm for stage in part.first_stages] == [None]
    assert [row.candidates for row in part.ranked] == ["dense"]


def test_the_report_is_read_back_from_json():
    found = report()
    assert FirstStageReport.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_tables_show_each_figure_and_a_dash_beyond_the_depth():
    deep = {"q1": [f"p{number}" for number in range(20)], "q4": ["e"]}
    found = report(sparse=measured(SPARSE), dense=measured(deep))

    table = first_stages_table.stage_table(found, found.splits[0])

    assert table.header[4:] == ["R@10", "R@20", "out of reach", "queries/s", "size"]
    sparse, dense = table.lines
    assert sparse[4:] == ["-", "-", "50.0%", "1,234", "8.1 MB"]
    assert dense[4:] == ["0.2500", "0.2500", "75.0%", "10", "999 B"]


def test_text_and_markdown_say_what_retrieval_and_ranking_lose():
    found = report()
    console = Console(width=160)
    with console.capture() as drawn:
        console.print(first_stages_table.plain(found))

    sentence = "Candidates of sparse, ranked by ranker: MRR@10 is 0.5000; retrieval loses 0.5000, ranking loses 0.0000."
    for text in (" ".join(drawn.get().split()), first_stages_table.markdown(found)):
        assert sentence in text
        assert "No rows in this split: file." in text
        assert "No scores: dense;" in text
    assert "(recall-dev.png)" in first_stages_table.markdown(found)


@pytest.mark.parametrize("draw", [first_stages_plot.recall_png, first_stages_plot.ranking_png])
def test_the_plots_are_drawn_whatever_the_depth(draw):
    for found in (report(), report(sparse=None), report(sparse=measured({"q1": ["a"]}))):
        assert draw(found.splits[0]).startswith(b"\x89PNG")


def test_sizes_and_speeds_are_short():
    sizes = [first_stages_table.size_text(size) for size in (0, 999, 1590, 2_950_000, 12_345_000_000)]
    assert sizes == ["0 B", "999 B", "1.59 kB", "2.95 MB", "12.3 GB"]
    assert [first_stages_table.speed_text(speed) for speed in (0.123, 9.87, 1234.5)] == ["0.12", "9.9", "1,234"]


@pytest.mark.timed
def test_seven_thousand_queries_with_a_thousand_candidates_take_seconds():
    num_queries, depth = 7000, 1000
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 1_000_000, (2, num_queries))
    queries = pa.array([f"query{number}" for number in range(num_queries)])
    passages = pa.array([f"passage{number}" for number in range(1_001_000)])
    runs = []
    for start in starts:
        of_query, rank = np.repeat(np.arange(num_queries), depth), np.tile(np.arange(depth), num_queries)
        columns = [queries.take(of_query), passages.take(start[of_query] + rank), rank.astype(np.int32) + 1]
        runs.append(pa.table([*columns, -rank.astype(np.float32)], schema=CANDIDATES))
    qrels = pa.table(
        [queries, passages.take(starts[0] + 5), np.ones(num_queries, np.int32), ["dev"] * num_queries], schema=JUDGMENTS
    )

    started = time.process_time()
    found = {name: Measured(places(qrels, run), top_rows(run)) for name, run in zip("ab", runs, strict=True)}
    part = split_report("dev", qrels, found, [], "a", procedure=QUICK)

    assert time.process_time() - started < 20
    assert part.first_stages[0].mrr.mean == pytest.approx(1 / 6)
