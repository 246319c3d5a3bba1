"""The pre-training model: copied or new heads, a decoder tied to the word embeddings, and STRM."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import (
    BertConfig,
    BertForPreTraining,
    BertModel,
    ElectraConfig,
    ElectraModel,
    RobertaConfig,
    RobertaModel,
)

from rayrank.core.config import EncoderConfig, PipelineConfig, PretrainConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder
from rayrank.models.pretraining import IGNORED, PretrainingModel, build
from rayrank.text.words import ALONE, CONTINUES, STARTS

LENGTH, MASK = 32, 3


def tiny_config(layers: int = 2) -> BertConfig:
    return BertConfig(
        vocab_size=45, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=LENGTH, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        attn_implementation="sdpa",
    )  # fmt: skip


def tiny_model(words: np.ndarray | None = None, layers: int = 2) -> PretrainingModel:
    torch.manual_seed(0)
    return PretrainingModel(Encoder(BertModel(tiny_config(layers)), words))


def saved_folder(folder: Path, model: Any) -> PipelineConfig:
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.1 * torch.randn_like(weights))
    model.save_pretrained(folder)
    return PipelineConfig(encoder=EncoderConfig(name=str(folder), dropout=0), pretrain=PretrainConfig(length=LENGTH))


def random_batch() -> tuple[PaddedBatch, torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    ids, masked = torch.randint(5, 45, (3, 12)), torch.tensor([2, 3, 15, 30])
    return PaddedBatch(ids, torch.ones_like(ids), torch.zeros_like(ids)), masked, ids.flatten()[masked]


def test_the_heads_of_a_checkpoint_are_copied(tmp_path: Path) -> None:
    theirs = BertForPreTraining(tiny_config()).eval()
    config = saved_folder(tmp_path, theirs)
    batch, masked, labels = random_batch()

    with torch.no_grad():
        mlm, nsp = build(config, None).eval()(batch, masked, labels)
        own = theirs(batch.ids, attention_mask=batch.attention_mask, token_type_ids=batch.token_types)

    assert torch.allclose(mlm, own.prediction_logits.flatten(0, 1)[masked], atol=1e-5)
    assert torch.allclose(nsp, own.seq_relationship_logits, atol=1e-5)


def test_a_checkpoint_without_heads_gets_new_ones(tmp_path: Path) -> None:
    base = BertModel(tiny_config())
    model = build(saved_folder(tmp_path, base), None)
    batch, masked, labels = random_batch()

    mlm, nsp = model(batch, masked, labels)

    assert (mlm.shape, nsp.shape) == ((4, 45), (3, 2))
    assert torch.equal(model.pooler.dense.weight, base.pooler.dense.weight)
    assert model.bias.eq(0).all()
    assert 0 < model.next_sentence.weight.std() < 0.1


def test_the_decoder_stays_tied_to_the_word_embeddings_through_saving_and_loading(tmp_path: Path) -> None:
    source, model = tiny_model(), tiny_model()
    with torch.no_grad():
        for weights in source.parameters():
            weights.add_(torch.randn_like(weights))
    save_file(source.state_dict(), tmp_path / "model.safetensors")
    model.load_state_dict(load_file(tmp_path / "model.safetensors"))
    batch, masked, labels = random_batch()

    with torch.no_grad():
        assert torch.equal(model(batch, masked, labels)[0], source(batch, masked, labels)[0])
        chosen = model.transform(model.encoder(batch).flatten(0, 1)[masked])
        words = model.encoder.base.get_input_embeddings().weight
        assert torch.allclose(model(batch, masked, labels)[0], functional.linear(chosen, words, model.bias))


def test_word_embeddings_narrower_than_the_layers_are_predicted_from_their_width(tmp_path: Path) -> None:
    electra = ElectraConfig(
        vocab_size=45, embedding_size=16, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=LENGTH,
    )  # fmt: skip
    model = build(saved_folder(tmp_path, ElectraModel(electra)), None)
    batch, masked, labels = random_batch()

    mlm, nsp = model(batch, masked, labels)

    assert (mlm.shape, nsp.shape) == ((4, 45), (3, 2))
    assert model.transform(torch.zeros(1, 32)).shape == (1, 16)


def test_inputs_longer_than_the_encoder_supports_are_refused(tmp_path: Path) -> None:
    config = saved_folder(tmp_path, BertModel(tiny_config()))
    longer = config.model_copy(update={"pretrain": PretrainConfig(length=LENGTH + 1)})

    with pytest.raises(ConfigError, match=r"pretrain\.length=33 cannot be used: .* reads 32 word pieces at most"):
        build(longer, None)


def test_the_two_positions_that_roberta_reserves_are_not_for_pieces(tmp_path: Path) -> None:
    sizes = {name: getattr(tiny_config(), name) for name in ("vocab_size", "hidden_size", "num_attention_heads")}
    roberta = RobertaModel(RobertaConfig(**sizes, num_hidden_layers=1, max_position_embeddings=LENGTH, pad_token_id=1))
    config = saved_folder(tmp_path, roberta)
    fits = config.model_copy(update={"pretrain": PretrainConfig(length=LENGTH - 2)})

    with pytest.raises(ConfigError, match=r"pretrain\.length=32 cannot be used: .* reads 30 word pieces at most"):
        build(config, None)

    ids = torch.full((2, LENGTH - 2), 7)
    batch = PaddedBatch(ids, torch.ones_like(ids), torch.zeros_like(ids))
    build(fits, None)(batch, torch.tensor([3]), torch.tensor([7]))


@pytest.mark.parametrize("strm", [False, True])
def test_strm_hides_a_words_first_piece_from_the_next_sentence_head(strm: bool) -> None:
    words = np.full(45, STARTS, np.int8)
    words[40:] = CONTINUES
    model = tiny_model(words if strm else None, layers=1).eval()
    batch, masked, labels = random_batch()
    batch.ids[:, 4], batch.ids[:, 5] = 10, 41  # One word of two pieces, represented by the second.
    other = copy.deepcopy(batch)
    other.ids[:, 4] = 11

    with torch.no_grad():
        before, after = model(batch, masked, labels)[1], model(other, masked, labels)[1]

    assert torch.allclose(before, after, atol=1e-7) == strm


@pytest.mark.parametrize("read", [MASK, 20, 41])
def test_a_masked_piece_stays_a_piece_of_its_word(read: int) -> None:
    words = np.full(45, STARTS, np.int8)
    words[40:], words[MASK] = CONTINUES, ALONE
    model = tiny_model(words, layers=1).eval()
    batch, *_ = random_batch()
    batch.ids[:, 4], batch.ids[:, 5] = 10, read  # One word of two pieces, represented by the second, which is masked.
    other = copy.deepcopy(batch)
    other.ids[:, 4] = 11
    masked = torch.tensor([5, 17, 29, 0])
    labels = torch.tensor([41, 41, 41, IGNORED])

    with torch.no_grad():
        (guess, pair), (other_guess, other_pair) = (model(each, masked, labels) for each in (batch, other))

    assert torch.allclose(pair, other_pair, atol=1e-7)
    assert not torch.allclose(guess[:3], other_guess[:3], rtol=0, atol=1e-5)
