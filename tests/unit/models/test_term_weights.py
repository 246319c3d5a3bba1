"""DeepCT's model: one weight for each piece, the same padded and packed, in any batch, saved and loaded."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core.artifacts import Artifact
from rayrank.core.config import StrmConfig
from rayrank.models.encoder import Encoder
from rayrank.models.inference import term_weigher
from rayrank.models.inference.term_weigher import TermWeigher
from rayrank.models.saved import load_model, save
from rayrank.models.term_weights import TermWeights, batch_of
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template
from tests.unit.models.conftest import CPU, GPU

OFF = StrmConfig(form="off")
TEMPLATE = Template(cls_id=1, sep_id=2, pad_id=0, length=30, query_length=28)


def model() -> TermWeights:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=60, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=32, initializer_range=0.5, attn_implementation="sdpa",
    )  # fmt: skip
    return TermWeights(Encoder(BertModel(config), None, OFF)).eval()


def windows(count: int = 40) -> Ragged:
    rng = np.random.default_rng(1)
    return Ragged.of([rng.integers(3, 60, rng.integers(1, 29)) for _ in range(count)])


def one_by_one(weights: TermWeights, texts: Ragged) -> torch.Tensor:
    device = next(weights.parameters()).device
    inputs = TEMPLATE.prefixes(texts)
    rows: list[Rows] = [np.array([row]) for row in range(len(texts))]
    with torch.inference_mode():
        found = [weights(batch_of(inputs, row, TEMPLATE, packed=False).to(device))[0, 1:-1] for row in rows]
    return torch.cat(found).cpu()


def test_a_weight_is_the_linear_layer_on_a_pieces_state() -> None:
    weights, texts = model(), windows(3)
    batch = batch_of(TEMPLATE.prefixes(texts), np.arange(3), TEMPLATE, packed=False)
    with torch.no_grad():
        found, states = weights(batch), weights.encoder(batch)
    assert found.shape == batch.ids.shape
    torch.testing.assert_close(found, states @ weights.head.weight[0].detach() + weights.head.bias.detach())


@pytest.mark.parametrize("device", [CPU, GPU])
def test_packed_and_padded_inputs_have_the_same_weights(device: torch.device) -> None:
    weights, texts = model().to(device), windows(8)
    inputs = TEMPLATE.prefixes(texts)
    batch = batch_of(inputs, np.arange(8), TEMPLATE, packed=True)
    with torch.inference_mode():
        found = weights(batch.to(device)).cpu()
    is_piece = np.ones(len(inputs.values), bool)
    is_piece[inputs.starts] = is_piece[inputs.stops - 1] = False
    tolerance = 1e-4 if device == CPU else 2e-2
    torch.testing.assert_close(found[: len(is_piece)][is_piece], one_by_one(weights, texts), atol=tolerance, rtol=0)


@pytest.mark.parametrize("device", [CPU, GPU])
def test_weights_are_in_the_order_of_the_pieces_whatever_the_batches(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term_weigher, "CPU_TOKENS", 90)
    weights, texts = model().to(device), windows()
    found = TermWeigher(weights, TEMPLATE)(texts)
    tolerance = 1e-4 if device == CPU else 5e-2
    np.testing.assert_allclose(found, one_by_one(weights, texts).numpy(), atol=tolerance)
    assert TermWeigher(weights, TEMPLATE)(Ragged.of([])).tolist() == []


def test_a_saved_model_gives_the_same_weights_bit_for_bit(tmp_path: Path) -> None:
    artifact, weights = Artifact(str(tmp_path), "deepct", "key"), model()
    save(artifact, weights.encoder.base.config, weights.state_dict(), weights.description())

    again = load_model(artifact, OFF, np.empty(0, np.int8))

    assert isinstance(again, TermWeights)
    assert torch.equal(one_by_one(again, windows(5)), one_by_one(weights, windows(5)))
