"""Calibrated probabilities rise with the score, match known probabilities, and are measured on other queries."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.special import expit

from rayrank.core.errors import DatasetError
from rayrank.scores import calibration
from rayrank.scores.calibration import Calibration, expected_calibration_error, fit, log_loss

SCORES = np.random.default_rng(0).normal(0, 3, 20_000)
QUERIES = np.repeat(np.arange(200), 100)
TRUTHS = {
    "platt": expit(0.7 * SCORES - 2),
    "isotonic": np.where(SCORES > 2, 0.6, 0.05),
}


def drawn(truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.random.default_rng(1).random(len(truth)) < truth


def test_the_error_of_two_bins_is_worked_by_hand() -> None:
    # Two pairs at 0.1, one of them relevant: off by 0.4. Two at 0.9, both relevant: off by 0.1.
    assert expected_calibration_error([0.1, 0.1, 0.9, 0.9], [0, 1, 1, 1]) == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)
    # In one bin, being too high here makes up for being too low there.
    assert expected_calibration_error([0.1, 0.9], [1, 0], bins=1) == pytest.approx(0)
    assert expected_calibration_error([0.0, 1.0], [0, 1]) == 0


def test_the_log_loss_is_worked_by_hand_and_always_finite() -> None:
    assert log_loss([0.5, 0.25], [1, 0]) == pytest.approx(-(np.log(0.5) + np.log(0.75)) / 2)
    assert 30 < log_loss([0.0], [1]) < 40


@pytest.mark.parametrize("kind", TRUTHS)
def test_the_kind_of_curve_that_fits_known_probabilities_is_chosen_and_recovers_them(kind: str) -> None:
    truth = TRUTHS[kind]

    found = fit(SCORES, drawn(truth), QUERIES)

    assert found.kind == kind
    assert np.abs(found.apply(SCORES) - truth).mean() < 0.01
    assert found.ece_after < 0.02 < 0.2 < found.ece_before
    # No curve can do better than the truth itself, on pairs it was not fitted to.
    assert log_loss(truth, drawn(truth)) * 0.999 < found.log_loss_after < found.log_loss_before
    assert (found.num_pairs, found.num_queries) == (20_000, 200)


def test_the_slope_and_intercept_of_platt_scaling_are_recovered() -> None:
    found = fit(SCORES, drawn(TRUTHS["platt"]), QUERIES, "platt")

    assert (found.slope, found.intercept) == pytest.approx((0.7, -2), abs=0.06)


def test_scores_that_are_already_calibrated_are_not_changed() -> None:
    found = fit(SCORES, drawn(expit(SCORES)), QUERIES, "platt")

    assert np.abs(found.apply(SCORES) - expit(SCORES)).max() < 0.02
    assert found.log_loss_after == pytest.approx(found.log_loss_before, abs=1e-3)


def test_an_isotonic_curve_is_worked_by_hand() -> None:
    # The labels fall from score 2 to score 3, so that these two share one level, in their middle.
    scores, labels = [1, 2, 3, 4] * 2, [0, 1, 0, 1] * 2
    targets = {0: 1 / 6, 1: 5 / 6}

    found = fit(scores, labels, [1] * 4 + [2] * 4, "isotonic")

    assert found.points == pytest.approx(np.array([(1, targets[0]), (2.5, 0.5), (4, targets[1])]))
    between = (targets[0] + 0.5) / 2
    assert found.apply([0, 1, 1.75, 2.5, 9]) == pytest.approx([targets[0], targets[0], between, 0.5, targets[1]])


pairs = st.lists(
    st.tuples(st.floats(-50, 50, width=32), st.booleans(), st.integers(0, 5)), min_size=4, max_size=60
).filter(lambda rows: len({row[1] for row in rows}) == 2 and len({row[2] for row in rows}) > 1)


@settings(max_examples=150, deadline=None)
@given(rows=pairs, kind=st.sampled_from(["isotonic", "platt", "auto"]))
def test_every_fitted_curve_is_monotone_and_within_0_to_1(rows: list, kind: str) -> None:
    scores, labels, queries = zip(*rows, strict=True)

    found = fit(scores, labels, queries, kind)

    chances = found.apply(np.sort([*scores, *np.linspace(-100, 100, 200)]))
    assert chances.dtype == np.float32
    assert (np.diff(chances) >= 0).all()
    assert (chances >= 0).all()
    assert (chances <= 1).all()
    assert Calibration.model_validate_json(found.model_dump_json()) == found


def test_no_pair_is_measured_by_a_curve_fitted_to_its_query() -> None:
    # Of two queries one is always relevant and the other never: each is measured by what the other one says, which is
    # 1/10 after eight pairs.
    found = fit([0.5] * 16, [1] * 8 + [0] * 8, ["a"] * 8 + ["b"] * 8, "isotonic")

    assert found.log_loss_after == pytest.approx(np.log(10))
    assert found.ece_after == pytest.approx(0.9)
    assert found.apply([0.5]) == pytest.approx([0.5])


def test_the_order_of_the_pairs_does_not_matter() -> None:
    labels = drawn(TRUTHS["isotonic"])
    order = np.random.default_rng(4).permutation(len(SCORES))

    one, other = fit(SCORES, labels, QUERIES), fit(SCORES[order], labels[order], QUERIES[order])

    assert np.allclose(one.apply(SCORES), other.apply(SCORES))
    assert one.figures() == pytest.approx(other.figures())


def test_a_curve_of_many_points_is_reduced_to_a_maximum_and_keeps_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = drawn(TRUTHS["platt"])
    whole = fit(SCORES, labels, QUERIES, "isotonic")
    monkeypatch.setattr(calibration, "MAX_POINTS", 12)

    thinned = fit(SCORES, labels, QUERIES, "isotonic")

    assert len(whole.points) > 12
    assert len(thinned.points) == 12
    assert (thinned.points[0], thinned.points[-1]) == (whole.points[0], whole.points[-1])
    assert np.abs(thinned.apply(SCORES) - whole.apply(SCORES)).max() < 0.1


@pytest.mark.parametrize("kind", ["isotonic", "platt"])
def test_uninformative_scores_become_the_share_of_relevant_pairs(kind: str) -> None:
    labels = [True] + [False] * 3
    for scores in (np.zeros(400), -np.tile(labels, 100).astype(float)):
        found = fit(scores, np.tile(labels, 100), np.arange(400), kind)

        # Constant scores, and such as tell the wrong way round.
        assert found.apply([-9, 0, 9]) == pytest.approx([0.25] * 3, abs=0.01)


@pytest.mark.parametrize(
    ("scores", "labels", "queries", "sentence"),
    [
        ([1, 2], [0, 0], [1, 2], "all 2 candidates are not relevant, and it needs both kinds; raise candidates.depth"),
        ([1, 2], [1, 1], [1, 2], "all 2 candidates are relevant"),
        ([1, 2], [0, 1], [1, 1], "needs the candidates of two queries, and there are 1"),
        ([], [], [], "two queries, and there are 0"),
        ([1, np.nan], [0, 1], [1, 2], "some scores are not finite numbers"),
    ],
)
def test_data_that_no_curve_can_be_fitted_to_is_one_sentence(
    scores: list, labels: list, queries: list, sentence: str
) -> None:
    with pytest.raises(DatasetError, match=f"No calibration can be fitted: .*{sentence}"):
        fit(scores, labels, queries)


@pytest.mark.parametrize(
    "changed", [{"slope": -1}, {"kind": "isotonic"}, {"kind": "isotonic", "points": [(0, 0.5), (1, 0.4)]}]
)
def test_a_file_with_a_decreasing_or_empty_curve_is_refused(changed: dict) -> None:
    whole = fit(SCORES, drawn(TRUTHS["platt"]), QUERIES, "platt").model_dump()

    with pytest.raises(ValidationError, match=r"must not fall|needs points"):
        Calibration.model_validate({**whole, **changed})
