"""Thresholds by wanted precision, chosen and measured by hand on small dev sets."""

import numpy as np
import pytest

from rayrank.core.errors import ConfigError
from rayrank.scores.calibration import Curve
from rayrank.scores.precision import Level, PrecisionTable, lowest_threshold, precision_table, wilson

SIGMOID = Curve(kind="platt")


def flags(*values: int) -> np.ndarray:
    return np.array(values, np.bool_)


def test_the_lowest_threshold_with_the_wanted_share_of_relevant_candidates_is_worked_by_hand() -> None:
    scores, relevant = np.array([5.0, 4.0, 3.0, 2.0, 1.0]), flags(1, 0, 1, 1, 0)

    # From the best score on, the shares are 1, 1/2, 2/3, 3/4 and 3/5. A threshold lies midway between two scores.
    assert lowest_threshold(scores, relevant, 0.9) == 4.5
    assert lowest_threshold(scores, relevant, 0.75) == 1.5
    assert lowest_threshold(scores, relevant, 0.6) == 0.0
    assert lowest_threshold(scores, flags(0, 1, 1, 1, 1), 0.9) is None
    # Equal scores pass together: of the two best, one is relevant.
    assert lowest_threshold(np.array([5.0, 5.0, 1.0]), flags(1, 0, 0), 0.9) is None


def test_wilsons_interval_is_worked_by_hand() -> None:
    # z^2 = 3.8415. For 10 of 10: (1 + 0.19207 - 0.19207) / 1.38415 = 0.7225, and 1.
    assert wilson(1.0, 10) == pytest.approx((0.7225, 1.0), abs=1e-4)
    # For 50 of 100: (0.5 + 0.019207 -+ sqrt(0.038415 * (0.25 + 0.0096036))) / 1.038415.
    assert wilson(0.5, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)


def dev(num_queries: int, strong: float, weak_relevant: int = 0) -> tuple[list[float], list[int], list[int]]:
    """Every query has a relevant candidate at the score `strong` and another candidate at -2."""
    scores = [each for _ in range(num_queries) for each in (strong, -2.0)]
    labels = [each for _ in range(num_queries) for each in (1, weak_relevant)]
    return scores, labels, [query for query in range(num_queries) for _ in range(2)]


def test_each_half_of_dev_is_measured_at_the_threshold_of_the_other() -> None:
    table = precision_table(*dev(100, 3.0), SIGMOID, (0.5, 0.9))

    half, most = table.levels
    # All candidates together are relevant in half of the cases, so every one passes.
    assert (half.logit, half.precision, half.num_queries) == (-3.0, 0.5, 100)
    assert (most.logit, most.precision, most.num_queries) == (0.5, 1.0, 100)
    assert most.probability == pytest.approx(1 / (1 + np.exp(-0.5)))
    assert (most.low, most.high) == pytest.approx(wilson(1.0, 100))


def test_a_threshold_that_held_out_queries_do_not_confirm_is_not_given() -> None:
    # The relevant candidates of even queries have higher scores than the others, those of odd queries lower ones.
    scores = [each for query in range(100) for each in ((3.0, 1.0) if query % 2 == 0 else (1.5, 2.0))]
    labels, query_ids = [1, 0] * 100, np.repeat(np.arange(100), 2)

    (level,) = precision_table(scores, labels, query_ids, SIGMOID, (0.9,)).levels

    # On all of dev, 2.5 is the lowest threshold: above it are the 50 relevant candidates at 3. The even half chooses
    # 2, at which no candidate of the odd half is relevant; the odd half finds none.
    assert level.logit is None
    assert level.precision == 0.0
    assert "held-out queries reach only 0.000" in level.reason


def test_a_small_dev_set_gives_no_threshold_and_says_why() -> None:
    (level,) = precision_table(*dev(12, 3.0), SIGMOID, (0.9,)).levels

    assert (level.logit, level.num_queries) == (None, 12)
    assert level.reason == "dev is too small: 12 held-out queries keep an answer, and 20 are needed"


def test_a_precision_that_no_score_reaches_is_not_given() -> None:
    scores, _, query_ids = dev(40, 3.0)

    (level,) = precision_table(scores, [0, 1] * 40, query_ids, SIGMOID, (0.9,)).levels

    assert (level.logit, level.reason) == (None, "no score is high enough for it on dev")


TABLE = PrecisionTable(
    num_queries=300,
    levels=(
        Level(wanted=0.5, logit=-1.0, probability=0.4, num_queries=280, precision=0.52, low=0.46, high=0.58),
        Level(wanted=0.8, logit=1.0, probability=0.7, num_queries=200, precision=0.81, low=0.75, high=0.86),
        Level(wanted=0.9, reason="no score is high enough for it on dev"),
    ),
)


def test_a_wanted_precision_between_two_rows_gets_the_stricter_one() -> None:
    assert [TABLE.threshold(wanted) for wanted in (0.1, 0.5, 0.51, 0.8)] == [-1.0, -1.0, 1.0, 1.0]


def test_a_wanted_precision_beyond_the_table_is_one_sentence_with_what_can_be_had() -> None:
    with pytest.raises(ConfigError) as error:
        TABLE.threshold(0.9)
    assert str(error.value) == (
        "min_precision=0.9 cannot be given by this model: on 300 dev queries it reaches 0.8 at most; send less, or "
        "min_relevance."
    )
    nothing = PrecisionTable(num_queries=5, levels=TABLE.levels[2:])
    with pytest.raises(ConfigError, match=r"on 5 dev queries it reaches none of 0\.9; send min_relevance\."):
        nothing.threshold(0.5)


def test_the_finding_states_sizes_and_intervals() -> None:
    finding = TABLE.finding()

    assert "0.8 from probability 0.700 on (200 of 300 queries keep an answer, measured 0.810, 95 % interval" in finding
    assert finding.endswith("0.9 cannot be given: no score is high enough for it on dev")
