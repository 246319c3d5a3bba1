import io
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from rich.console import Console

from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.data.pair_set import PairSet
from rayrank.reports import noise_table
from rayrank.reports.noise import GRID, report
from rayrank.reports.noise_plot import noise_png
from rayrank.scores.noise_filter import probabilities, removed


def logit(probability):
    return math.log(probability / (1 - probability))


def scored(rows):
    """Rows of (query, passage, rank, probability)."""
    columns = list(map(list, zip(*rows, strict=True))) or [[], [], [], []]
    return pa.table([*columns[:3], [logit(p) for p in columns[3]]], schema=CANDIDATES)


def judged(*pairs, relevance=1):
    rows = [(*pair, relevance, "train") for pair in pairs]
    return pa.table(list(map(list, zip(*rows, strict=True))) if rows else [[]] * 4, schema=JUDGMENTS)


HAND = scored(
    [
        ("q1", "a", 1, 0.99),  # judged relevant
        ("q1", "b", 2, 0.95),  # hidden truth
        ("q1", "c", 3, 0.92),  # not relevant
        ("q1", "d", 4, 0.10),
        ("q2", "a", 1, 0.97),  # hidden truth
        ("q2", "e", 2, 0.60),  # judged relevant, below the threshold
        ("q3", "a", 1, 0.20),  # hidden truth, below the threshold
        ("q3", "b", 2, 0.30),
        ("q3", "f", 3, 0.40),  # judged irrelevant
    ]
)
JUDGED = pa.concat_tables([judged(("q1", "a"), ("q2", "e"), ("q2", "nowhere")), judged(("q3", "f"), relevance=0)])
HIDDEN = judged(("q1", "b"), ("q2", "a"), ("q3", "a"), ("q3", "nowhere"))
TYPES = pa.table({"query_id": ["q1", "q2", "q3"], "query_type": ["person", "person", ""]})


def test_grades_below_relevant_from_are_judged_but_not_positives():
    judgments = pa.concat_tables([judged(("q1", "a"), ("q2", "e"), relevance=1), judged(("q1", "c"), relevance=2)])
    strict = report([HAND], judgments, None, 0.9, HIDDEN, relevant_from=2)
    assert (strict["num_positives"], strict["num_judged_irrelevant"], strict["num_negatives"]) == (1, 2, 8)
    assert strict["hidden"]["num_hidden"] == 0
    assert report([HAND], judgments, None, 0.9, HIDDEN)["num_positives"] == 3


def test_margins_and_relabelling_are_measured_against_the_hidden_truth():
    facts = report([HAND], JUDGED, None, 0.9, HIDDEN, margin=2.0, relabel=0.94)
    # Within 2 of 0.99's logit, 4.6, are 0.95 and 0.92; 0.97 scores above 0.60; the positive of q3 was not scored.
    near = facts["at_margin"]
    assert (near["margin"], near["num_removed"], near["precision"], near["recall"]) == (2.0, 2, 1.0, 2 / 3)
    wide = report([HAND], JUDGED, None, 0.9, HIDDEN, margin=2.2)["at_margin"]
    assert (wide["num_removed"], wide["precision"], wide["recall"]) == (3, 2 / 3, 2 / 3)
    removed = [point["num_removed"] for point in facts["margins"]]
    assert removed == sorted(removed)
    sure = facts["at_relabel"]
    assert (sure["num_removed"], sure["precision"], sure["recall"]) == (2, 1.0, 2 / 3)
    said = "\n".join(noise_table.sentences(facts))
    assert (
        "noise.margin=2 removes 2 negatives (28.6%): precision 100.0%, recall 66.7% against the hidden truth." in said
    )
    assert "noise.relabel=0.94 makes 2 unjudged candidates positives: precision 100.0%, recall 66.7%" in said
    assert any(line[0] == "2 *" for line in noise_table.margin_table(facts).lines)
    assert "noise.margin" not in "\n".join(noise_table.sentences(report([HAND], JUDGED, None, 0.9)))


def random_scores(seed, num_queries=50, depth=20):
    rng = np.random.default_rng(seed)
    count = num_queries * depth
    table = pa.table(
        [
            np.repeat([f"q{i}" for i in range(num_queries)], depth).tolist(),
            [f"p{i % 37}" for i in range(count)],
            np.tile(np.arange(1, depth + 1), num_queries).tolist(),
            rng.normal(0, 4, count).astype(np.float32),
        ],
        schema=CANDIDATES,
    )
    pairs = list(zip(table["query_id"].to_pylist(), table["passage_id"].to_pylist(), strict=True))
    order = rng.permutation(count)
    return table, judged(*(pairs[i] for i in order[:60])), judged(*(pairs[i] for i in order[60:160]))


@given(
    hnp.arrays(np.float32, 30, elements=st.floats(width=32, allow_nan=False)),
    hnp.arrays(np.bool_, 30),
    st.floats(0.001, 1),
    st.floats(0.001, 1),
)
def test_judged_candidates_stay_and_a_higher_threshold_removes_no_more(scores, judged, one, other):
    low, high = sorted((one, other))
    assert not removed(scores, judged, low)[judged].any()
    assert not (removed(scores, judged, high) & ~removed(scores, judged, low)).any()
    assert not removed(scores, judged, 1.0).any()


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.9, 0.999])
def test_candidates_with_a_probability_above_the_threshold_are_removed(threshold):
    scores = np.random.default_rng(0).normal(0, 5, 5000).astype(np.float32)
    nobody = np.zeros(5000, bool)
    assert removed(scores, nobody, threshold).tolist() == (probabilities(scores) > threshold).tolist()
    at = np.array([0.0], np.float32)
    assert not removed(at, nobody[:1], 0.5).any()  # at the threshold is not above it
    assert removed(np.nextafter(at, np.float32(1)), nobody[:1], 0.5).all()


@pytest.mark.parametrize("threshold", [0.0, -0.1, 1.01, math.nan])
def test_a_threshold_outside_0_to_1_is_refused(threshold):
    with pytest.raises(ConfigError, match=r"noise\.threshold"):
        removed(np.zeros(1, np.float32), np.zeros(1, bool), threshold)


def test_all_figures_of_a_case_worked_by_hand():
    facts = report([HAND], JUDGED, TYPES, 0.9, HIDDEN)
    assert (facts["num_queries"], facts["num_candidates"], facts["num_negatives"]) == (3, 9, 7)
    assert (facts["num_positives"], facts["num_positives_not_candidates"], facts["num_judged_irrelevant"]) == (2, 1, 1)
    assert facts["hidden"] == {"num_hidden": 3, "num_hidden_not_candidates": 1, "base_rate": pytest.approx(3 / 7)}
    at = facts["at_threshold"]
    assert at.pop("share_removed_by_type") == {"(none)": 0.0, "person": 3 / 4}
    assert at == pytest.approx(
        {
            "threshold": 0.9,
            "num_removed": 3,
            "share_removed": 3 / 7,
            "num_queries_without_negatives": 1,
            "num_queries_halved": 2,
            "mean_negatives_left": 4 / 3,
            "num_judged_irrelevant_kept": 0,
            "num_positives_above": 1,
            "num_positives_below": 1,
            "share_positives_above": 1 / 2,
            "mean_rank_removed": (2 + 3 + 1) / 3,
            "precision": 2 / 3,
            "recall": 2 / 3,
            "times_chance": (2 / 3) / (3 / 7),
        }
    )
    assert facts["types"] == {"(none)": {"num_negatives": 3}, "person": {"num_negatives": 4}}


def test_a_candidate_that_was_judged_irrelevant_is_kept_and_counted():
    judgments = pa.concat_tables([JUDGED, judged(("q1", "c"), ("q1", "d"), relevance=0)])
    facts = report([HAND], judgments, TYPES, 0.9, HIDDEN)
    at = facts["at_threshold"]
    # (q1, c) was judged 0 and scores 0.92; (q1, d) and (q3, f) were judged 0 and score below the threshold.
    assert (at["num_removed"], at["num_judged_irrelevant_kept"], facts["num_judged_irrelevant"]) == (2, 1, 3)
    assert facts["num_negatives"] == 7
    assert at["precision"] == 1.0
    assert "1 candidates that were judged irrelevant score above it and are kept" in noise_table.markdown(facts)


def test_a_threshold_of_one_removes_nothing_and_is_in_the_grid():
    facts = report([HAND], JUDGED, TYPES, 1.0, HIDDEN)
    at = facts["at_threshold"]
    assert (at["num_removed"], at["share_removed"], at["recall"]) == (0, 0.0, 0.0)
    assert at["precision"] is at["mean_rank_removed"] is at["times_chance"] is None
    assert facts["grid"][-1] == at


@pytest.mark.parametrize("seed", range(3))
def test_the_grid_is_monotone_and_histograms_add_up(seed):
    table, judgments, hidden = random_scores(seed)
    facts = report([table], judgments, None, 0.87, hidden)
    grid = facts["grid"]
    assert [point["threshold"] for point in grid] == sorted({*GRID, 0.87})
    for name in ("num_removed", "num_positives_above", "recall", "num_queries_halved"):
        values = [point[name] for point in grid]
        assert values == sorted(values, reverse=True)
        assert values[0] > values[-1]
    for name in ("positives", "negatives"):
        assert sum(facts["histogram"][name]) == facts[f"num_{name}"]
    assert sum(facts["histogram"]["hidden"]) == facts["hidden"]["num_hidden"] == 100
    upper = facts["histogram"]["negatives"][20:]
    assert sum(upper) == grid[0]["num_removed"]  # bins from 0.5 on
    assert facts["types"] == grid[0]["share_removed_by_type"] == {}


@pytest.mark.parametrize("seed", range(3))
def test_the_report_does_not_depend_on_parts_and_the_order_of_rows(seed):
    table, judgments, hidden = random_scores(seed)
    types = pa.table({"query_id": [f"q{i}" for i in range(50)], "query_type": [f"t{i % 3}" for i in range(50)]})
    whole = report([table], judgments, types, 0.9, hidden)
    shuffled = table.slice(400).take(pa.array(np.random.default_rng(seed).permutation(600)))
    parts = [shuffled, table.slice(0, 0), table.slice(0, 400)]
    assert report(parts, judgments, types, 0.9, hidden) == whole


def test_a_query_split_over_parts_is_refused():
    with pytest.raises(ValueError, match="'q1' is in two parts"):
        report([HAND.slice(0, 2), HAND.slice(2)], JUDGED, None, 0.9)


def test_scores_that_are_not_numbers_are_refused():
    with pytest.raises(DatasetError, match="not a number"):
        report([pa.table([["q"], ["p"], [1], [math.nan]], schema=CANDIDATES)], JUDGED, None, 0.9)


def test_a_pair_is_found_only_if_query_and_passage_match():
    pairs = PairSet(judged(("q1", "a"), ("q2", "b")))
    assert pairs.marks(judged(("q1", "a"), ("q1", "b"), ("q2", "b"), ("q2", "x"), ("x", "a"))).tolist() == [
        True,
        False,
        True,
        False,
        False,
    ]
    assert PairSet(judged()).marks(HAND).tolist() == [False] * 9
    assert (len(pairs), len(PairSet(judged()))) == (2, 0)


def test_without_hidden_answers_no_precision_is_reported():
    facts = report([HAND], JUDGED, TYPES, 0.9)
    assert facts["hidden"] is None
    assert "hidden" not in facts["histogram"]
    assert "precision" not in facts["at_threshold"]
    assert "precision" not in noise_table.markdown(facts)


@pytest.mark.parametrize("hidden", [None, HIDDEN, judged()], ids=["unknown", "some", "none"])
@pytest.mark.parametrize("types", [None, TYPES], ids=["no types", "types"])
@pytest.mark.parametrize("threshold", [0.9, 0.33, 1.0])
def test_every_report_can_be_rendered_in_every_format(hidden, types, threshold):
    facts = report([HAND], JUDGED, types, threshold, hidden)
    assert json.loads(json.dumps(facts)) == facts
    for table in (noise_table.threshold_table(facts), noise_table.margin_table(facts), noise_table.type_table(facts)):
        assert {len(line) for line in table.lines} <= {len(table.header)}
    text = noise_table.markdown(facts)
    blocks = [block for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == (2 if types is None else 3)
    for block in blocks:
        assert len({line.count("|") for line in block.strip().splitlines()}) == 1
    stream = io.StringIO()
    Console(file=stream, width=140).print(noise_table.plain(facts))
    assert f"{threshold:g} *" in stream.getvalue()
    assert noise_table.sentences(facts)[0] in stream.getvalue()


@pytest.mark.parametrize(
    "facts",
    [
        report([HAND], JUDGED, None, 0.9, HIDDEN),
        report([HAND], JUDGED, None, 1.0),
        report([HAND.filter(pa.array([True] + [False] * 8))], JUDGED, None, 0.9, HIDDEN),  # no negatives at all
        report([scored([])], JUDGED, None, 0.9, HIDDEN),
    ],
    ids=["truth", "nothing removed", "positives only", "empty"],
)
def test_the_plot_is_a_png(facts):
    assert noise_png(facts).startswith(b"\x89PNG")
    assert noise_table.sentences(facts)
