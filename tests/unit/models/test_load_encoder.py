"""Loading a pre-trained encoder: without output, with its first layers only, or with an error naming the setting."""

import logging
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertModel,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2Model,
    PreTrainedModel,
)

from rayrank.core.artifacts import Artifact
from rayrank.core.config import EncoderConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.reranker import Reranker
from rayrank.models.saved import save
from rayrank.text.words import CONTINUES, STARTS

VOCABULARY = 40
WORDS = np.array([STARTS] * 25 + [CONTINUES] * 15, np.int8)
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
IDS = torch.tensor([[1, 30, 31, 2, 3], [4, 5, 33, 6, 7]])
BATCH = PaddedBatch(IDS, torch.ones_like(IDS), torch.zeros_like(IDS))


def bert() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**SIZES))


def saved(model: PreTrainedModel, folder: Path) -> EncoderConfig:
    model.save_pretrained(folder)
    return EncoderConfig(name=str(folder), dropout=0)


def test_loading_prints_nothing_and_restores_the_log_level_of_transformers(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = saved(bert(), tmp_path)
    level = logging.getLogger("transformers").level
    capfd.readouterr()

    loaded = load_encoder(config, WORDS)

    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("transformers").level == level
    with torch.no_grad():
        assert torch.equal(loaded.eval()(BATCH), Encoder(bert().eval(), WORDS)(BATCH))


def test_more_layers_than_the_encoder_has_are_refused(tmp_path: Path) -> None:
    config = saved(bert(), tmp_path).model_copy(update={"layers": 40})

    with pytest.raises(ConfigError, match=r"encoder\.layers=40 cannot be used: .* has 3 layers; lower encoder\.layers"):
        load_encoder(config, WORDS)


def test_an_encoder_that_repeats_one_layer_cannot_be_shortened(tmp_path: Path) -> None:
    config = saved(AlbertModel(AlbertConfig(**SIZES, embedding_size=8)), tmp_path).model_copy(update={"layers": 2})

    with pytest.raises(
        ConfigError, match=r"encoder\.layers=2 cannot be used: all layers of AlbertModel are one module; omit"
    ):
        load_encoder(config, WORDS)


def test_strm_layers_are_checked_against_the_layers_that_are_kept(tmp_path: Path) -> None:
    config = saved(bert(), tmp_path).model_copy(update={"layers": 2})

    assert list(load_encoder(config, WORDS, StrmConfig(first_layer=1)).strm_layers) == [1]
    with pytest.raises(ConfigError, match=r"strm\.last_layer=2 cannot be used: the encoder has 2 layers"):
        load_encoder(config, WORDS, StrmConfig(last_layer=2))


def test_weights_that_do_not_match_their_config_are_refused(tmp_path: Path) -> None:
    config = saved(bert(), tmp_path)
    BertConfig(**{**SIZES, "num_hidden_layers": 4}).save_pretrained(tmp_path)

    with pytest.raises(ConfigError, match=r"encoder\.name=.* cannot be used: it lacks 16 weights of BertModel"):
        load_encoder(config, WORDS)


def test_an_encoder_of_another_architecture_is_refused(tmp_path: Path) -> None:
    config = saved(GPT2Model(GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=1, n_head=2)), tmp_path)

    with pytest.raises(
        ConfigError, match=r"encoder\.name=.* cannot be loaded: its model type gpt2 is not supported; .* such as BERT"
    ):
        load_encoder(config, WORDS)


def test_the_encoder_of_a_trained_model_can_start_another_training(tmp_path: Path) -> None:
    trained = Reranker(Encoder(bert(), WORDS), 2)
    save(Artifact(str(tmp_path), "pointwise", "key"), trained.encoder.base.config, trained.state_dict(), {"kind": "x"})

    loaded = load_encoder(EncoderConfig(name=str(tmp_path / "pointwise" / "key" / "model")), WORDS)

    assert loaded.state_dict().keys() == trained.encoder.state_dict().keys()
    for name, weights in trained.encoder.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weights), name
