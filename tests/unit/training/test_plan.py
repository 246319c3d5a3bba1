"""How many steps a phase takes, and with which batches."""

import math

import pytest
from hypothesis import given, strategies as st

from rayrank.core.config import PointwiseConfig
from rayrank.training.plan import MEASUREMENTS, MOST_EPOCHS, Plan, scaled_to

GIVEN = PointwiseConfig(epochs=1, batch_size=128, lr=1e-4, min_steps=400)


def test_much_data_is_trained_on_as_the_settings_say() -> None:
    plan = Plan.of(60_000, GIVEN)
    assert plan.config == GIVEN
    assert (plan.num_steps, plan.measured, plan.note(60_000, GIVEN)) == (469, {469}, "")


def test_little_data_gets_smaller_batches_and_a_lower_learning_rate() -> None:
    scaled = scaled_to(4608, GIVEN)
    assert (scaled.batch_size, scaled.epochs) == (8, 1)
    assert scaled.lr == pytest.approx(1e-4 / 4)
    assert scaled_to(30_000, GIVEN).batch_size == 64


def test_very_little_data_is_repeated_and_measured_a_few_times() -> None:
    plan = Plan.of(150, GIVEN)
    assert (plan.config.batch_size, plan.config.epochs, plan.num_steps) == (8, 22, 418)
    assert len(plan.measured) == MEASUREMENTS
    assert plan.note(150, GIVEN) == (
        "150 examples are few: 418 steps with batches of 8 instead of 128, 22 epochs instead of 1, and a learning rate "
        "of 2.5e-05"
    )


def test_data_is_repeated_thirty_times_at_most() -> None:
    assert Plan.of(10, GIVEN).num_steps == 2 * MOST_EPOCHS


def test_without_a_smallest_number_of_steps_the_settings_stay() -> None:
    given_settings = PointwiseConfig(epochs=2, batch_size=128)
    assert scaled_to(3, given_settings) == given_settings


@given(
    st.integers(1, 10**6), st.integers(1, 512), st.integers(1, 40), st.integers(0, 1000), st.integers(1, 64),
    st.integers(1, 5),
)  # fmt: skip
def test_a_plan_ends_measured_and_is_never_shorter_than_the_settings_ask(
    examples: int, batch: int, epochs: int, least: int, smallest: int, evaluations: int
) -> None:
    config = PointwiseConfig(epochs=epochs, batch_size=batch, min_steps=least, smallest_batch=smallest)
    plan = Plan.of(examples, config, evaluations)
    assert plan.is_measured(plan.num_steps)
    assert plan.num_steps >= math.ceil(examples / batch) * epochs
    assert plan.config.batch_size >= min(batch, smallest)
    assert plan.num_steps >= least or plan.config.epochs >= min(MOST_EPOCHS, least)
    assert plan.config.lr <= config.lr
