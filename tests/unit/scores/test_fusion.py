"""Fusion of named features: what is learned is the best of its form, and never from the query that it scores."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray

from rayrank.core.errors import ConfigError
from rayrank.scores.fusion import (
    MIDDLE,
    RIDGE,
    Feature,
    Fusion,
    Lists,
    feature_values,
    field_points,
    learn,
    learn_halves,
    linear_weights,
)
from rayrank.scores.union import Union
from tests.unit.runs.first_stages import table

DEPTH = 20


def lists(weights: list[float], num_queries: int = 400, seed: int = 1) -> Lists:
    """Lists whose relevant passage was drawn with the softmax of the weighted features as its probabilities."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(size=(num_queries * DEPTH, len(weights)))
    scores = (values @ np.array(weights)).reshape(num_queries, DEPTH)
    drawn = (scores + rng.gumbel(size=scores.shape)).argmax(1)
    gains = np.zeros(scores.shape)
    gains[np.arange(num_queries), drawn] = 1.0
    return Lists(values, np.repeat(np.arange(num_queries), DEPTH), gains.ravel())


def loss(weights: NDArray[np.float64], found: Lists) -> float:
    scores = (found.values @ weights).reshape(-1, DEPTH)
    gains = found.gains.reshape(-1, DEPTH) / found.gains.reshape(-1, DEPTH).sum(1, keepdims=True)
    probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return float(-(gains * np.log(probabilities)).sum(1).mean() + RIDGE / 2 * weights @ weights)


def reciprocal_rank(scores: NDArray[np.floating], found: Lists) -> float:
    order = np.argsort(-scores.reshape(-1, DEPTH), axis=1)
    return float((1 / (1 + np.take_along_axis(found.gains.reshape(-1, DEPTH), order, 1).argmax(1))).mean())


def test_linear_weights_are_those_that_relevance_was_drawn_with_and_have_the_lowest_loss() -> None:
    true = [8.0, 3.0, -2.0, 0.0]
    found = lists(true)

    weights = linear_weights(found)

    assert weights == pytest.approx(true, abs=0.8)
    rng = np.random.default_rng(2)
    for _ in range(20):
        assert loss(weights, found) < loss(weights + rng.normal(size=4) * 0.1, found)


def test_grades_share_a_list_in_proportion() -> None:
    values = np.array([[1.0], [0.0], [0.0]])
    found = linear_weights(Lists(values, np.zeros(3, np.int64), np.array([3.0, 1.0, 0.0])))
    # The softmax gives the first passage 3/4 if exp(w) / (exp(w) + 2) = 3/4.
    assert found == pytest.approx([np.log(6)], abs=0.01)


def test_a_query_is_scored_with_what_the_other_half_teaches() -> None:
    names = [f"q{number}" for number in range(400)]
    found = lists([6.0, 0.0])

    def weights_of(gains: NDArray[np.float64]) -> tuple[Fusion, dict[str, Fusion]]:
        features = (Feature(name="a", kind="run"), Feature(name="b", kind="run"))
        each = found._replace(gains=gains)
        fusion, own = learn_halves(names, lambda queries: learn("linear", "min-max", features, each.of(queries)))
        return fusion, dict(own)

    other = found.gains.reshape(-1, DEPTH).copy()
    other[::2] = np.roll(other[::2], 1, axis=1)  # other judgments of the even queries
    before, after = weights_of(found.gains), weights_of(other.ravel())

    assert [before[1][name] == after[1][name] for name in names[:4]] == [True, False, True, False]
    assert before[0] != after[0]


def test_queries_without_a_relevant_passage_teach_nothing() -> None:
    found = lists([4.0, 1.0], 50)
    more = Lists(
        np.concatenate([found.values, np.ones((5, 2))]),
        np.concatenate([found.of_query, np.full(5, 50)]),
        np.concatenate([found.gains, np.zeros(5)]),
    )
    assert linear_weights(more.of(np.ones(51, np.bool_))) == pytest.approx(linear_weights(found))


def test_a_field_counts_by_its_quantile_and_a_missing_value_as_the_median() -> None:
    corpus = np.array([*range(101), *[np.nan] * 50], np.float64) ** 3
    points = field_points(corpus)
    assert np.array(field_points(np.array([0.0] * 75 + [9.0] * 25))) == pytest.approx(np.array([[0, 0.375], [9, 0.88]]))
    union = Union.of([table({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})])
    features = (Feature(name="bm25", kind="run"), Feature(name="price", kind="field", points=points))

    fields = np.array([[25.0**3], [np.nan], [1e9]])
    values = feature_values(union, [0], features, fields, "min-max")

    assert values == pytest.approx(np.array([[1.0, 0.25], [0.5, MIDDLE], [0.0, 1.0]]), abs=0.01)


def test_a_passage_that_one_run_lacks_has_its_lowest_value() -> None:
    union = Union.of([table({"q": {"a": 3.0, "b": 2.0}}), table({"q": {"b": 9.0, "c": 7.0}})])
    features = (Feature(name="one", kind="run"), Feature(name="two", kind="run"))
    values = feature_values(union, [0, 1], features, np.empty((3, 0)), "min-max")
    found = dict(zip(union.pairs["passage_id"].to_pylist(), values.tolist(), strict=True))
    assert found == {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [0.0, 0.0]}


def test_trees_learn_what_no_weights_can() -> None:
    pytest.importorskip("lightgbm", reason="LightGBM is an optional package")
    rng = np.random.default_rng(3)

    def either(seed: int) -> Lists:
        """Relevant is the passage with exactly one of two features."""
        drawn = lists([0.0, 0.0], seed=seed)
        values = (rng.uniform(size=(400, DEPTH, 2)) < 0.2).astype(np.float64)
        values[..., 1] = values[..., 0]
        values[:, 0] = [1.0, 0.0]
        values[:200, 0] = [0.0, 1.0]
        gains = np.zeros((400, DEPTH))
        gains[:, 0] = 1.0
        order = rng.permuted(np.tile(np.arange(DEPTH), (400, 1)), axis=1)
        values, gains = np.take_along_axis(values, order[..., None], 1), np.take_along_axis(gains, order, 1)
        return Lists(values.reshape(-1, 2), drawn.of_query, gains.ravel())

    features = (Feature(name="a", kind="run"), Feature(name="b", kind="run"))
    train, held_out = either(1), either(2)
    trees, linear = (learn(form, "min-max", features, train) for form in ("lambdarank", "linear"))

    assert reciprocal_rank(trees.scores(held_out.values), held_out) > 0.95
    assert reciprocal_rank(linear.scores(held_out.values), held_out) < 0.6
    assert Fusion.model_validate_json(trees.model_dump_json()).scores(held_out.values) == pytest.approx(
        trees.scores(held_out.values)
    )


def test_without_lightgbm_the_form_lambdarank_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    with pytest.raises(ConfigError, match=r"^form=lambdarank .* needs LightGBM, .* or set form=linear\.$"):
        learn("lambdarank", "min-max", (Feature(name="a", kind="run"),), lists([1.0], 20))
