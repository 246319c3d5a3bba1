"""Attention between pieces: the same weights as those of the whole input, for the pieces of query and passage."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, BertTokenizer, PreTrainedTokenizerFast

from rayrank.bundle.explain import attention_weights, copy_sharing_weights
from rayrank.bundle.piece_attention import PieceAttention, piece_attention
from rayrank.core.config import InputConfig, StrmConfig
from rayrank.models.encoder import Encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.markers import num_ids
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] what is a bog ##ue ##us fish entity .".split()
QUERY, PASSAGE = "what is a bog ##ue".split(), "a bog ##us fish .".split()


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    folder = tmp_path_factory.mktemp("tokenizer")
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder))
    return load_tokenizer(str(folder))


def texts_of(tokenizer: PreTrainedTokenizerFast, inputs: InputConfig) -> PairTexts:
    query, passage, kind = (
        Ragged.of([[VOCABULARY.index(piece) for piece in pieces]]) for pieces in (QUERY, PASSAGE, ["entity"])
    )
    template = Template.of(tokenizer, inputs)
    return PairTexts(template.prefixes(query, kind if inputs.query_type else None), passage, template)


def tiny(tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, inputs: InputConfig) -> Reranker:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=num_ids(tokenizer, inputs), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    return Reranker(Encoder(BertModel(config), word_table(tokenizer), strm), 1).eval()


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("markers", [0, 4])
def test_rows_are_the_querys_pieces_and_columns_the_passages(
    tokenizer: PreTrainedTokenizerFast, typed: bool, markers: int
) -> None:
    inputs = InputConfig(length=48, query_length=16, query_type=typed, markers=markers)
    model, texts = tiny(tokenizer, StrmConfig(form="off"), inputs), texts_of(tokenizer, inputs)
    batch = texts.padded(np.zeros(1, np.int64), np.zeros(1, np.int64), torch.device("cpu"))
    every = torch.eye(batch.ids.shape[1])
    whole, score = attention_weights(copy_sharing_weights(model), batch, every, every)

    found = piece_attention(model, texts, 0, 0)

    assert [VOCABULARY[number] for number in found.query] == QUERY
    assert [VOCABULARY[number] for number in found.passage] == PASSAGE
    assert found.score == score
    assert found.weights.shape == (2, 2, len(QUERY), len(PASSAGE))
    ids = batch.ids[0].tolist()
    ue, us = VOCABULARY.index("##ue"), VOCABULARY.index("##us")
    assert torch.allclose(found.weights[:, :, 4, 2], whole[:, :, ids.index(ue), ids.index(us)])


def test_with_strm_no_query_piece_attends_to_a_hidden_passage_piece(tokenizer: PreTrainedTokenizerFast) -> None:
    inputs = InputConfig(length=48, query_length=16, query_type=False)
    texts = texts_of(tokenizer, inputs)
    hidden = [
        piece_attention(tiny(tokenizer, StrmConfig(form=form), inputs), texts, 0, 0).weights[..., PASSAGE.index("bog")]
        for form in ("mask", "off")
    ]
    assert hidden[0].max() == 0
    assert hidden[1].min() > 0


def test_weights_are_averaged_over_the_heads_of_the_last_layer_or_of_all() -> None:
    # Two layers of two heads, for one query piece and two passage pieces.
    weights = torch.tensor([[[[0.0, 0.2]], [[0.2, 0.4]]], [[[0.1, 0.1]], [[0.3, 0.7]]]])
    found = PieceAttention([5], [6, 7], weights, 0.0)
    assert found.mean("last") == pytest.approx(np.array([[0.2, 0.4]]))
    assert found.mean("mean") == pytest.approx(np.array([[0.15, 0.35]]))
