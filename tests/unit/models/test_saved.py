"""A model that was saved and loaded gives the same output bit for bit."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core.artifacts import Artifact
from rayrank.core.config import StrmConfig
from rayrank.core.errors import StorageError
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder
from rayrank.models.pretraining import PretrainingModel
from rayrank.models.reranker import Reranker
from rayrank.models.saved import load_model, load_pretrained, load_reranker, save

WORDS = np.array([2, 2, 2] + [1, 0] * 20, np.int8)


def encoder(strm: StrmConfig) -> Encoder:
    config = BertConfig(
        vocab_size=43, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=16, attn_implementation="sdpa",
    )  # fmt: skip
    return Encoder(BertModel(config), WORDS, strm)


def batch() -> PaddedBatch:
    ids = torch.randint(3, 43, (4, 10), generator=torch.Generator().manual_seed(1))
    return PaddedBatch(ids, torch.ones_like(ids), torch.zeros_like(ids))


@pytest.mark.parametrize(
    "strm", [StrmConfig(), StrmConfig(form="off"), StrmConfig(form="bias"), StrmConfig(first_layer=1)]
)
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_reranker_scores_the_same_bit_for_bit(strm: StrmConfig, outputs: int, tmp_path: Path) -> None:
    artifact = Artifact(str(tmp_path), "pointwise", "key")
    model = Reranker(encoder(strm), outputs).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    save(artifact, model.encoder.base.config, model.state_dict(), model.description())

    again = load_reranker(artifact, strm, WORDS)

    with torch.inference_mode():
        assert torch.equal(again(batch()), model(batch()))
    assert not again.training


def test_the_encoder_is_loaded_from_a_pretrained_model_without_its_heads(tmp_path: Path) -> None:
    artifact = Artifact(str(tmp_path), "pretrain", "key")
    model = PretrainingModel(encoder(StrmConfig())).eval()
    save(artifact, model.encoder.base.config, model.state_dict(), model.description())

    again = load_pretrained(artifact, StrmConfig(), WORDS).eval()

    with torch.inference_mode():
        assert torch.equal(again(batch()), model.encoder(batch()))


def test_a_model_comes_back_as_the_kind_that_it_was_saved_as(tmp_path: Path) -> None:
    artifact = Artifact(str(tmp_path), "pretrain", "abc")
    model = PretrainingModel(encoder(StrmConfig(form="off")))
    save(artifact, model.encoder.base.config, model.state_dict(), model.description())

    again = load_model(artifact, StrmConfig(form="off"), WORDS)

    assert isinstance(again, PretrainingModel)
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    with pytest.raises(StorageError, match="is no re-ranker"):
        load_reranker(artifact, StrmConfig(form="off"), WORDS)


def test_an_unknown_kind_is_one_sentence(tmp_path: Path) -> None:
    artifact = Artifact(str(tmp_path), "listwise", "abc")
    artifact.write_json("model/kind.json", {"kind": "colbert"})
    with pytest.raises(StorageError, match="is of the kind colbert, which this version does not know"):
        load_model(artifact, StrmConfig(form="off"), WORDS)
