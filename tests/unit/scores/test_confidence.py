"""How often a model is right at a probability: reliability by bins, and the first passages."""

import numpy as np
import pytest

from rayrank.scores.confidence import confidence, reliability


def test_a_bin_has_its_mean_probability_and_its_share_of_relevant_pairs() -> None:
    found = reliability(np.array([0.02, 0.04, 0.95, 1.0]), np.array([False, True, True, True]))

    assert [each["count"] for each in found] == [2, 2]
    assert [each["predicted"] for each in found] == pytest.approx([0.03, 0.975])
    assert [each["relevant"] for each in found] == [0.5, 1.0]


def test_the_first_passage_of_a_query_is_the_one_with_the_highest_score() -> None:
    scores, relevant = np.array([1.0, 3.0, 2.0, 0.5]), np.array([False, True, False, True])

    found = confidence(scores, relevant, np.array([0, 0, 1, 1]))

    assert (found["num_top"], found["precision_of_all"]) == (2, 0.5)
