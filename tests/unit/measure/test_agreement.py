import numpy as np
import pytest

from rayrank.measure.agreement import best_first, kendall_tau, rank_biased_overlap


def test_equal_scores_stay_in_the_order_given():
    assert best_first([1, 3, 1, 3]).tolist() == [1, 3, 0, 2]


def test_the_overlap_of_three_passages_is_worked_by_hand():
    # Orders abc and bac share nothing at rank 1, both passages at rank 2, all at rank 3 and for ever after.
    p = 0.5
    expected = (1 - p) * (0 + p * 1 + p**2 * 1) + p**3
    assert rank_biased_overlap([3, 2, 1], [2, 3, 1], p) == pytest.approx(expected)


def test_the_overlap_of_equal_orders_is_1_and_differences_at_the_top_lower_it_most():
    scores = np.arange(20.0)[::-1]
    at_top, at_end = scores.copy(), scores.copy()
    at_top[[0, 1]], at_end[[18, 19]] = scores[[1, 0]], scores[[19, 18]]

    assert rank_biased_overlap(scores, 2 * scores + 7) == pytest.approx(1)
    assert rank_biased_overlap(scores, at_top) < rank_biased_overlap(scores, at_end) < 1
    assert rank_biased_overlap(scores, -scores) < 0.5
    # Kendall's tau counts both swaps the same.
    assert kendall_tau(scores, at_top) == kendall_tau(scores, at_end) == pytest.approx(1 - 2 / 190)


def test_tau_is_1_for_equal_orders_minus_1_for_reversed_ones_and_0_for_constant_scores():
    assert kendall_tau([1, 2, 3], [1, 2, 3]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1], [2]) == 1
    assert kendall_tau([1, 1], [1, 2]) == kendall_tau([1, 2], [np.nan, np.nan]) == 0
