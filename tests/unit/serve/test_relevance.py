"""Which passages reach the thresholds that a request sets, worked by hand."""

import pytest

from rayrank.core.errors import ConfigError
from rayrank.scores.precision import Level, PrecisionTable
from rayrank.serve.records import Ask
from rayrank.serve.relevance import UNCALIBRATED, Thresholds

TABLE = PrecisionTable(
    num_queries=100,
    levels=(Level(wanted=0.9, logit=1.0, probability=0.7, num_queries=80, precision=0.9, low=0.8, high=0.95),),
)
LOGITS, CHANCES, ORDER = [0.0, 3.0, None, 1.0], [0.5, 0.95, None, 0.7], [1, 3, 0]


def thresholds(relevance: float | None = None, precision: float | None = None) -> Thresholds:
    return Thresholds.of(Ask("q", ["a"] * 4, min_relevance=relevance, min_precision=precision), TABLE)


def select(found: Thresholds, calibrated: bool = True) -> tuple[list[int], list[str]]:
    return found.select(ORDER, LOGITS, CHANCES, calibrated)


@pytest.mark.parametrize(
    ("relevance", "precision", "kept"),
    [
        (None, None, [1, 3, 0]), (0.0, None, [1, 3, 0]), (0.7, None, [1, 3]), (0.71, None, [1]), (1.0, None, []),
        (None, 0.8, [1, 3]), (0.8, 0.8, [1]),
    ],
)  # fmt: skip
def test_passages_that_reach_every_threshold_are_kept_in_their_order(
    relevance: float | None, precision: float | None, kept: list[int]
) -> None:
    assert select(thresholds(relevance, precision))[0] == kept


def test_a_warning_says_that_nothing_reaches_the_thresholds() -> None:
    assert select(thresholds(0.9, 0.9)) == ([1], [])
    assert select(thresholds(0.99, 0.9)) == (
        [],
        ["No result: no passage reaches min_relevance=0.99 and min_precision=0.9; the best has the probability 0.950."],
    )
    # No passage was scored before the deadline: `partial` says so.
    assert thresholds(0.9).select([], [None] * 4, [None] * 4, calibrated=True) == ([], [])


def test_a_probability_that_is_not_calibrated_is_mentioned() -> None:
    assert select(thresholds(0.5), calibrated=False) == ([1, 3, 0], [UNCALIBRATED])
    assert select(thresholds(None, 0.9), calibrated=False) == ([1, 3], [])


def test_a_precision_without_a_table_is_refused_with_the_fix() -> None:
    with pytest.raises(ConfigError, match=r"min_precision=0\.9 cannot be given: .* export the model again"):
        Thresholds.of(Ask("q", ["a"], min_precision=0.9), None)
