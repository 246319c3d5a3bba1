"""A passage's score from its windows' scores, on hand-worked cases."""

import numpy as np

from rayrank.scores.window_scores import aggregate, best_window, best_windows

SCORES, COUNTS = np.array([1.0, 3.0, 2.0, -5.0, 4.0, 4.0], np.float32), np.array([3, 1, 2])


def test_highest_first_and_mean() -> None:
    assert aggregate(SCORES, COUNTS, "max").tolist() == [3.0, -5.0, 4.0]
    assert aggregate(SCORES, COUNTS, "first").tolist() == [1.0, -5.0, 4.0]
    assert aggregate(SCORES, COUNTS, "mean").tolist() == [2.0, -5.0, 4.0]


def test_the_best_windows_descend_and_a_short_passage_repeats_its_lowest() -> None:
    assert best_windows(SCORES, COUNTS, 2).tolist() == [[3.0, 2.0], [-5.0, -5.0], [4.0, 4.0]]
    assert best_windows(SCORES, COUNTS, 4)[0].tolist() == [3.0, 2.0, 1.0, 1.0]


def test_of_equally_good_windows_the_first_is_the_best() -> None:
    assert best_window(SCORES, COUNTS).tolist() == [1, 3, 4]


def test_no_passages_have_no_scores() -> None:
    nothing = np.empty(0, np.float32), np.empty(0, np.int64)

    assert all(len(aggregate(*nothing, how)) == 0 for how in ("max", "first", "mean"))
    assert best_windows(*nothing, 3).shape == (0, 3)
