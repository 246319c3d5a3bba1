"""How often a model is right at a probability: reliability by bins, and cuts that keep as many queries as they can."""

import numpy as np
import pytest

from rayrank.scores.confidence import confidence, cut, reliability


def test_a_bin_has_its_mean_probability_and_its_share_of_relevant_pairs() -> None:
    found = reliability(np.array([0.02, 0.04, 0.95, 1.0]), np.array([False, True, True, True]))

    assert [each["count"] for each in found] == [2, 2]
    assert [each["predicted"] for each in found] == pytest.approx([0.03, 0.975])
    assert [each["relevant"] for each in found] == [0.5, 1.0]


def test_the_lowest_cut_that_is_right_often_enough_keeps_the_most_queries() -> None:
    probabilities, right = np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, True])

    assert cut(probabilities, right, 0.75) == {"target": 0.75, "cut": 0.6, "kept": 1.0, "precision": 0.75}
    assert cut(probabilities, right, 0.8) == {"target": 0.8, "cut": 0.9, "kept": 0.25, "precision": 1.0}


def test_a_cut_keeps_all_queries_of_the_same_probability() -> None:
    found = cut(np.array([0.9, 0.9]), np.array([True, False]), 0.8)

    assert (found["cut"], found["kept"], found["precision"]) == (None, 0.0, None)


def test_the_first_passage_of_a_query_is_the_one_with_the_highest_score() -> None:
    scores, relevant = np.array([1.0, 3.0, 2.0, 0.5]), np.array([False, True, False, True])

    found = confidence(scores, relevant, np.array([0, 0, 1, 1]))

    assert (found["num_top"], found["precision_of_all"]) == (2, 0.5)
