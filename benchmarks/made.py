"""Models and inputs of the shapes that are compared everywhere; weights and words do not matter for speed."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rayrank.config import MINILM, EncoderConfig, StrmConfig
from rayrank.modeling.batches import PairTexts
from rayrank.modeling.encoder import Encoder, load_encoder
from rayrank.modeling.reranker import Reranker
from rayrank.text.pairs import Ragged
from rayrank.text.words import CONTINUES, word_table

ENCODERS = ("large", "minilm")
CONTINUED = 0.15
"""Share of pieces that go on with a word, as in English text under BERT's vocabulary."""


def made_reranker(encoder: str, tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, dropout: float = 0.1) -> Reranker:
    """Return a re-ranker with one score: MiniLM-L6 with its weights, or BERT-large's shape with random ones."""
    torch.manual_seed(13)
    words = word_table(tokenizer)
    if encoder == "minilm":
        return Reranker(load_encoder(EncoderConfig(name=MINILM, dropout=dropout), words, strm), 1)
    shape = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    # A CPU takes long to draw so many weights.
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        base = BertModel(shape)
    return Reranker(Encoder(base, words, strm), 1)


def made_texts(count: int, tokenizer: PreTrainedTokenizerFast, mean: int = 102, length: int = 180) -> PairTexts:
    """Return as many queries as passages; their pairs, row by row, have a mean length and a longest one."""
    rng = np.random.default_rng(13)
    words = word_table(tokenizer)
    pieces = np.flatnonzero(words != CONTINUES), np.flatnonzero(words == CONTINUES)

    def ids(sizes: np.ndarray) -> Ragged:
        goes_on = rng.random(sizes.sum()) < CONTINUED
        values = np.where(goes_on, rng.choice(pieces[1], len(goes_on)), rng.choice(pieces[0], len(goes_on)))
        return Ragged(values.astype(np.int32), np.concatenate([[0], np.cumsum(sizes)]))

    query_sizes = rng.integers(6, 14, count)
    starts = ids(query_sizes)
    starts.values[starts.offsets[:-1]] = tokenizer.cls_token_id
    starts.values[starts.offsets[1:] - 1] = tokenizer.sep_token_id
    # Two thirds of a bell and a third of texts that are cut, so that lengths spread as passages' do.
    bodies = np.where(rng.random(count) < 0.12, length, rng.gamma(4, (mean - 24) / 4, count).astype(np.int64) + 4)
    return PairTexts(starts, ids(np.minimum(bodies, length)), length, tokenizer.pad_token_id, tokenizer.sep_token_id)


def write_beir(folder: Path, split: str, passages: Sequence[str], queries: Sequence[str]) -> None:
    """Write a BEIR folder in which each query has one judged passage."""
    (folder / "qrels").mkdir(parents=True)
    for name, mark, texts in (("corpus", "p", passages), ("queries", "q", queries)):
        with (folder / f"{name}.jsonl").open("w") as stream:
            stream.writelines(json.dumps({"_id": f"{mark}{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    with (folder / "qrels" / f"{split}.tsv").open("w") as stream:
        stream.writelines(f"q{i}\tp{i % len(passages)}\t1\n" for i in range(len(queries)))
