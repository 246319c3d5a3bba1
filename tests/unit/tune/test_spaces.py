from pathlib import Path

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.tune.spaces import SPACES, Space, open_space

CONFIG = build("demo", assignments=["listwise.negatives=5", "noise.threshold=0.6", "listwise.lr=1e-4"])


def from_yaml(text: str, folder: Path, grid: bool = False, config: PipelineConfig = CONFIG) -> Space:
    file = folder / "space.yaml"
    file.write_text(text)
    return open_space(str(file), config, grid)


def test_the_default_space_has_three_settings_and_starts_from_the_configured_values() -> None:
    space = open_space("default", CONFIG)
    assert space.dimensions == {
        "listwise.negatives": IntDistribution(1, 15),
        "noise.threshold": FloatDistribution(0.1, 1.0),
        "listwise.lr": FloatDistribution(1e-6, 1e-4, log=True),
    }
    assert space.initial_points(CONFIG) == [{"listwise.negatives": 5, "noise.threshold": 0.6, "listwise.lr": 1e-4}]


def test_n_minus_is_every_number_of_negatives_with_three_seeds() -> None:
    points = open_space("n_minus", CONFIG).initial_points(CONFIG)
    assert len(points) == 45
    assert {(point["listwise.negatives"], point["training.seed"]) for point in points} == {
        (negatives, seed) for negatives in range(1, 16) for seed in (13, 14, 15)
    }


def test_values_have_the_types_of_their_settings(tmp_path: Path) -> None:
    space = from_yaml(
        "listwise.lr: {low: 1e-6, high: 1e-4, log: true}\n"
        "listwise.negatives: {low: 2, high: 8, step: 3}\n"
        "listwise.head: [difference, fresh]\n"
        "listwise.max_steps: [null, 10]\n"
        "input.query_type: [yes, no]\n",
        tmp_path,
    )
    assert space.dimensions["listwise.lr"] == FloatDistribution(1e-6, 1e-4, log=True)
    assert space.dimensions["listwise.negatives"] == IntDistribution(2, 8, step=3)
    assert space.dimensions["listwise.head"] == CategoricalDistribution(("difference", "fresh"))
    assert space.dimensions["listwise.max_steps"] == CategoricalDistribution((None, 10))
    assert space.dimensions["input.query_type"] == CategoricalDistribution((True, False))


def test_a_range_that_excludes_the_configured_value_is_widened_to_include_it(tmp_path: Path) -> None:
    config = build("demo", assignments=["listwise.lr=1e-3", "listwise.head=fresh"])
    space = from_yaml(
        "listwise.lr: {low: 1e-6, high: 1e-4, log: true}\nlistwise.head: [difference]\n", tmp_path, config=config
    )
    assert space.dimensions["listwise.lr"] == FloatDistribution(1e-6, 1e-3, log=True)
    assert space.dimensions["listwise.head"] == CategoricalDistribution(("fresh", "difference"))
    assert space.widened == ("listwise.lr from 1e-06 to 0.001", "listwise.head one of fresh, difference")


def test_a_range_that_includes_the_configured_value_is_not_widened() -> None:
    assert open_space("default", CONFIG).widened == ()
    assert open_space("n_minus", CONFIG).widened == ()
    assert open_space("default", build("minilm")).widened == ("listwise.negatives from 1 to 31",)


def test_a_grid_is_every_combination_and_nothing_else(tmp_path: Path) -> None:
    space = from_yaml(
        "listwise.negatives: {low: 1, high: 5, step: 2}\nnoise.threshold: {low: 0.5, high: 1, step: 0.25}\n",
        tmp_path,
        grid=True,
    )
    points = [tuple(point.values()) for point in space.initial_points(CONFIG)]
    assert points == [(n, t) for n in (1, 3, 5) for t in (0.5, 0.75, 1.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("listwise.negativs: {low: 1, high: 3}", "listwise.negativs does not exist: did you mean listwise.negatives"),
        ("listwise: {low: 1, high: 3}", "listwise is a section"),
        ("listwise.negatives: {low: 3, high: 1}", "range of listwise.negatives from 3 to 1 is empty"),
        ("listwise.negatives: {low: 3, high: 3}", "range of listwise.negatives from 3 to 3 is empty"),
        ("listwise.negatives: []", "listwise.negatives is an empty list"),
        ("listwise.weight_decay: {low: 0, high: 0.1, log: true}", "listwise.weight_decay has a log scale from 0"),
        ("listwise.lr: {low: 0, high: 0.1, log: true}", "listwise.lr=0 cannot be used: input should be greater than 0"),
        ("listwise.lr: {low: 1e-6, high: 1e-4, log: maybe}", "listwise.lr has log=maybe"),
        ("listwise.lr: {low: 1e-6, high: 1e-4, log: true, step: 1e-6}", "range of listwise.lr cannot be used"),
        ("listwise.negatives: {low: 1, high: 9, step: some}", "range of listwise.negatives cannot be used"),
        ("listwise.negatives: {low: 1, high: 9, step: null}", "range of listwise.negatives cannot be used"),
        ("noise.threshold: {low: 0.1, high: 0.9, step: inf}", "a step of inf does not fit between 0.1 and 0.9"),
        ("noise.threshold: {low: 0.1, high: 0.9, step: nan}", "a step of nan does not fit"),
        ("listwise.lr: {low: 1e-6, high: 1e-4, step: 1}", "a step of 1.0 does not fit between 1e-06 and 0.0001"),
        ("listwise.negatives: {low: 1.5, high: 3}", "listwise.negatives=1.5 cannot be used"),
        ("listwise.negatives: [1, many]", "listwise.negatives=many cannot be used"),
        ("noise.threshold: {low: 0.5, high: 2}", "noise.threshold=2 cannot be used"),
        ("strm.form: {low: mask, high: off}", "strm.form is not a number"),
        ("listwise.lr: 1e-4", "listwise.lr=1e-4 is no range of values"),
        ("listwise.lr: {low: 1e-6}", "is no range of values"),
        ("listwise.lr: {low: 1e-6, high: 1e-4, lgo: true}", "is no range of values"),
        ("evaluate.resamples: {low: 100, high: 200}", "evaluate.resamples changes nothing about the model"),
        ("resources.train_cpus: [1, 2]", "resources.train_cpus changes nothing about the model"),
        (
            "pretrain.max_steps: {low: 1, high: 40}\nlistwise.max_steps: {low: 1, high: 5}",
            "listwise.max_steps has no configured value",
        ),
        ("training.metric: [MRR@10, nDCG@10]", "training.metric cannot be swept, since trials are compared by it"),
        ("dataset.relevant_from: [1, 2]", "dataset.relevant_from cannot be swept"),
        ("- listwise.lr", "must map settings to values"),
        ("", "must map settings to values"),
        ("a: [", "is not YAML"),
    ],
)
def test_an_invalid_space_is_one_sentence_that_names_the_setting(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        from_yaml(text, tmp_path)
    sentence = str(caught.value)
    assert message in sentence
    assert sentence.startswith("--space ")
    assert "\n" not in sentence


def test_a_step_may_be_as_wide_as_the_range(tmp_path: Path) -> None:
    space = from_yaml("noise.threshold: {low: 0.1, high: 0.3, step: 0.2}", tmp_path, grid=True)

    assert [round(point["noise.threshold"], 9) for point in space.initial_points(CONFIG)] == [0.1, 0.3]


def test_a_value_that_is_listed_twice_is_tried_once(tmp_path: Path) -> None:
    space = from_yaml("listwise.negatives: [1, 3, 1]", tmp_path, grid=True)

    assert [point["listwise.negatives"] for point in space.initial_points(CONFIG)] == [1, 3]


def test_a_grid_needs_steps(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"listwise\.lr is a range without steps"):
        from_yaml("listwise.lr: {low: 1e-6, high: 1e-4}", tmp_path, grid=True)


def test_an_unknown_space_lists_the_built_in_ones() -> None:
    with pytest.raises(ConfigError, match=f"name one of {', '.join(SPACES)}, or a YAML file"):
        open_space("defualt", CONFIG)
