"""A pair's score does not depend on its batch, and a listwise head starts with the pointwise scores."""

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM, EncoderConfig, InputConfig, StrmConfig
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import load_encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker, listwise_head, relevance_score
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

QUERIES = ["where is the bogue", "who built the tall lighthouse"]
PASSAGES = [
    "The bogue lies in the bay.",
    "A bogus claim.",
    "It was built by Zelda Rookhaven in the hot summer of 1568.",
]


@pytest.fixture(scope="module")
def bert() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


def batch_of(bert: PreTrainedTokenizerFast, rows: list[tuple[int, int]]) -> PaddedBatch:
    def ids(texts: list[str]) -> Ragged:
        return Ragged.of([bert(text, add_special_tokens=False).input_ids for text in texts])

    template = Template.of(bert, InputConfig(query_type=False))
    chosen = np.array(rows)
    texts = PairTexts(template.prefixes(ids(QUERIES)), ids(PASSAGES), template)
    return texts.padded(chosen[:, 0], chosen[:, 1], torch.device("cpu"))


FORMS = [StrmConfig(form="off"), StrmConfig(), StrmConfig(first_layer=1), StrmConfig(form="bias")]


@pytest.mark.parametrize("strm", FORMS, ids=["off", "mask", "mask from layer 1", "bias"])
def test_a_pairs_score_does_not_depend_on_the_rest_of_its_batch(
    bert: PreTrainedTokenizerFast, strm: StrmConfig
) -> None:
    torch.manual_seed(0)
    model = Reranker(load_encoder(EncoderConfig(layers=2), word_table(bert), strm), 2).eval()
    if model.encoder.strm_bias is not None:
        torch.nn.init.normal_(model.encoder.strm_bias, std=0.02)
    rows = [(q, p) for q in range(2) for p in range(3)]

    with torch.no_grad():
        together = model(batch_of(bert, rows))
        alone = torch.cat([model(batch_of(bert, [row])) for row in rows])

    assert together.shape == (6, 2)
    assert together.dtype == torch.float32
    assert torch.allclose(together, alone, atol=1e-5)


def test_a_listwise_head_made_of_a_pointwise_one_gives_the_same_scores(bert: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(0)
    model = Reranker(load_encoder(EncoderConfig(layers=1), word_table(bert)), 2).eval()
    batch = batch_of(bert, [(0, 0), (0, 1), (1, 2)])

    with torch.no_grad():
        before = relevance_score(model(batch))
        listwise_head(model)
        after = relevance_score(model(batch))

    assert model.head.out_features == 1
    assert torch.allclose(before, after, atol=1e-6)
