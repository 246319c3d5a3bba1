"""Learning rates fall from layer to layer, frozen embeddings stay as they are, and by default nothing changes."""

import copy

import pytest
import torch
from transformers import AlbertConfig, AlbertModel

from rayrank.core.config import FineTuningConfig, ListwiseConfig, PhaseConfig, TrainingConfig
from rayrank.core.errors import ConfigError
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker
from rayrank.training.data import Inputs
from rayrank.training.layer_rates import with_frozen_parts
from rayrank.training.loop import fit
from rayrank.training.phases.listwise import Listwise
from rayrank.training.steps import adamw
from tests.unit.training.conftest import Kept, tiny_model


def rates(model: Reranker, config: PhaseConfig) -> dict[str, float]:
    found = {id(each): group["lr"] for group in adamw(model, config).param_groups for each in group["params"]}
    assert len(found) == len(list(model.parameters()))
    return {name: found[id(parameter)] for name, parameter in model.named_parameters()}


def test_each_layer_has_a_share_of_the_rate_of_the_layer_above_it() -> None:
    found = rates(tiny_model(1, 0.0), FineTuningConfig(lr=1.0, layer_decay=0.5))
    parts = {"head": 1.0, "encoder.base.encoder.layer.1": 0.5, "encoder.base.encoder.layer.0": 0.25}
    for part, rate in {**parts, "encoder.base.embeddings": 0.125, "encoder.base.pooler": 1.0}.items():
        assert {value for name, value in found.items() if name.startswith(part)} <= {rate}, part
    assert sorted(set(found.values())) == [0.125, 0.25, 0.5, 1.0]


def test_without_decay_there_are_the_two_groups_of_before() -> None:
    model = tiny_model(1, 0.0)
    decayed, others = adamw(model, ListwiseConfig(weight_decay=0.1)).param_groups
    assert (decayed["weight_decay"], others["weight_decay"], decayed["lr"]) == (0.1, 0.0, others["lr"])
    assert [each.ndim for each in decayed["params"]] == [2] * len(decayed["params"])


def test_the_log_has_the_rate_of_the_head() -> None:
    first, *others = adamw(tiny_model(1, 0.0), FineTuningConfig(lr=1.0, layer_decay=0.5)).param_groups
    assert first["lr"] == 1.0 > others[-1]["lr"]


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_embeddings_keep_their_weights_while_the_layers_learn(inputs: Inputs, frozen: bool) -> None:
    config = ListwiseConfig(lr=1e-3, epochs=2, negatives=3, batch_size=8, freeze_embeddings=frozen)
    model = with_frozen_parts(tiny_model(1, 0.0), config)
    before = copy.deepcopy(model.state_dict())
    phase = Listwise(inputs, config, TrainingConfig())

    fit(model, phase, config, training=TrainingConfig(), device=torch.device("cpu"), checkpoint=Kept(), log=print)

    unchanged = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    embeddings = {name for name in before if ".word_embeddings." in name or ".embeddings.LayerNorm." in name}
    layers = {name for name in before if ".encoder.layer." in name and name.endswith("output.dense.weight")}
    assert embeddings <= unchanged if frozen else not embeddings & unchanged
    assert layers
    assert not layers & unchanged


def test_an_encoder_that_repeats_one_layer_has_no_layer_rates() -> None:
    shape = AlbertConfig(
        vocab_size=40, embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    model = Reranker(Encoder(AlbertModel(shape), None), 1)
    with pytest.raises(
        ConfigError, match=r"^layer_decay=0\.9 cannot be used: the layers of this encoder are not separ"
    ):
        adamw(model, FineTuningConfig(layer_decay=0.9))
