"""A soup: the mean of the weights of listwise models that differ in their seed, made from their artifacts."""

import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.nodes import stage_of
from rayrank.core.overrides import build
from rayrank.models.saved import load_weights, save
from rayrank.stages.make import make
from rayrank.training.phases import listwise
from tests.unit.training.conftest import tiny_model

SEEDS = (13, 14, 15)
SOUP = ["listwise.soup=[13, 14, 15]", "runs.soup={kind: rerank, model: soup}"]


def trained(root: Path, config: PipelineConfig) -> tuple[Store, list[dict[str, Tensor]]]:
    """Listwise models of three seeds on storage, as their trainings would have left them."""
    store, found = Store(str(root)), []
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = tiny_model(1, 0.0)
        stage, own = stage_of(f"listwise@{seed}", config)
        artifact = store.artifact(stage, own)
        save(artifact, model.encoder.base.config, model.state_dict(), model.description())
        store.finish(artifact, own, time.monotonic(), {"dev": seed / 100})
        found.append(model.state_dict())
    return store, found


def test_a_soup_has_the_mean_of_its_members_weights_and_their_shape(tmp_path: Path) -> None:
    config = build("demo", assignments=SOUP)
    store, members = trained(tmp_path, config)

    made = make("soup", config, store)

    weights = load_weights(made)
    assert weights.keys() == members[0].keys()
    for name, tensor in weights.items():
        assert tensor.dtype == members[0][name].dtype
        torch.testing.assert_close(tensor, torch.stack([each[name] for each in members]).mean(0))
    first = store.require("listwise", config)
    assert [
        made.read_json(f"model/{name}.json") == first.read_json(f"model/{name}.json") for name in ("kind", "config")
    ]
    assert made.manifest["findings"] == [
        "soup: the mean of 3 listwise models, which have MRR@10 0.1300, 0.1400, 0.1500 on dev"
    ]


def test_the_member_with_the_seed_of_all_phases_is_the_model_that_exists_without_a_soup() -> None:
    before, after = build("demo"), build("demo", assignments=SOUP)
    members = [flow.key(f"listwise@{seed}", after) for seed in SEEDS]
    assert members[0] == flow.key("listwise", before) == flow.key("listwise", after)
    assert len(set(members)) == 3
    # All members start from the same model.
    assert {flow.inputs(f"listwise@{seed}", after) for seed in SEEDS} == {flow.inputs("listwise", before)}
    assert flow.inputs("soup", after) == ("listwise@13", "listwise@14", "listwise@15")
    assert flow.describe("listwise@14", after).folder == "listwise"


def test_a_soup_depends_on_its_seeds_and_on_what_its_members_depend_on() -> None:
    def key(*assignments: str) -> str:
        return flow.key("run:soup", build("demo", assignments=[*SOUP, *assignments]))

    changes = ("listwise.soup=[13, 14]", "listwise.lr=9e-6", "pointwise.lr=9e-6", "training.seed=3")
    assert len({key(), *map(key, changes)}) == 5
    assert key("sdnet.lr=9e-6") == key()


def test_a_member_draws_with_its_own_seed_in_the_listwise_phase_only() -> None:
    _, own = stage_of("listwise@14", build("demo", assignments=SOUP))
    assert listwise.settings(own).seeded(own.training).seed == 14
    assert own.pointwise.seeded(own.training).seed == own.training.seed == 13


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (SOUP[1:], r"^A run of kind rerank with model=soup needs seeds: set two or more, as in listwise.soup="),
        (["listwise.soup=[13]"], r"^listwise.soup=.* cannot be used: a soup needs two different seeds or more"),
        (["listwise.soup=[13, 13]"], r"^listwise.soup=.* cannot be used: a soup needs two different seeds or more"),
    ],
)
def test_seeds_that_make_no_soup_are_one_sentence(assignments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build("demo", assignments=assignments)


def test_a_node_with_a_seed_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="listwise@x is neither a stage nor a run"):
        flow.node("listwise@x", build("demo"))


def test_a_soup_without_seeds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="A soup needs seeds: set two or more"):
        make("soup", build("demo"), Store(str(tmp_path)))
