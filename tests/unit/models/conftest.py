"""Small re-rankers with random weights, and pairs for them."""

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AlbertConfig, AlbertModel, BertConfig, BertModel, RobertaConfig, RobertaModel

from rayrank.core.config import StrmConfig
from rayrank.models.encoder import Encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template
from rayrank.text.words import CONTINUES, STARTS
from tests.unit.models.encoder_kinds import KINDS, Saved, save

CPU = torch.device("cpu")
GPU = pytest.param(
    torch.device("cuda"), marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
)
PAD, CLS, SEP = 0, 1, 2
VOCABULARY = 60
FORMS = {
    "off": StrmConfig(form="off"),
    "mask": StrmConfig(),
    "mask from layer 1": StrmConfig(first_layer=1),
    "first piece": StrmConfig(representative="first"),
    "bias": StrmConfig(form="bias"),
}


def template(length: int) -> Template:
    return Template(CLS, SEP, PAD, length, query_length=length)


def texts(seed: int = 0, length: int = 24) -> PairTexts:
    rng = np.random.default_rng(seed)
    prefixes = Ragged.of([[CLS, *rng.integers(3, VOCABULARY, rng.integers(1, 6)), SEP] for _ in range(5)])
    passages = Ragged.of([rng.integers(3, VOCABULARY, rng.integers(0, 40)) for _ in range(30)])
    return PairTexts(prefixes, passages, template(length))


def rows(count: int, seed: int = 1) -> tuple[Rows, Rows]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, count), rng.integers(0, 30, count)


def model(strm: StrmConfig, kind: str = "bert", spread: float = 0.5, activation: str = "gelu") -> Reranker:
    torch.manual_seed(0)
    words = np.full(VOCABULARY, STARTS, np.int8)
    words[VOCABULARY // 2 :] = CONTINUES
    shape = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    # RoBERTa counts positions from padding_idx + 1, and ALBERT repeats one layer.
    config, of = {
        "bert": (BertConfig, BertModel),
        "roberta": (RobertaConfig, RobertaModel),
        "albert": (AlbertConfig, AlbertModel),
    }[kind]
    base = of(config(**shape, initializer_range=spread, pad_token_id=PAD, hidden_act=activation))
    found = Reranker(Encoder(base, words, strm), 1).eval()
    if found.encoder.strm_bias is not None:
        nn.init.normal_(found.encoder.strm_bias, std=0.02)
    # Biases are initialised to zero, with which a test would not notice a lost bias.
    for part in found.modules():
        if isinstance(part, nn.Linear):
            nn.init.normal_(part.bias, std=0.2)
    return found


@torch.no_grad()
def scores(reranker: Reranker, count: int = 12, packed: bool = False) -> torch.Tensor:
    source, device = texts(), next(reranker.parameters()).device
    batch = source.packed(*rows(count), 64 * count, device) if packed else source.padded(*rows(count), device)
    return reranker(batch)[:, 0].float().cpu()


@pytest.fixture(scope="module", params=KINDS)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """A tiny encoder of every kind."""
    return save(request.param, tmp_path_factory.mktemp(request.param))
