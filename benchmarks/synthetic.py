"""Models and inputs with realistic shapes. Their weights and words do not affect speed, so they may be random."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rayrank.core.config import MINILM, EncoderConfig, InputConfig, StrmConfig
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import CONTINUES, word_table

ENCODERS = ("large", "minilm")
CONTINUATIONS = 0.15
"""Share of word pieces that continue a word (`##`), as in English text with BERT's vocabulary."""

NUM_TRIED = 20_000
"""Random pairs of pieces that are tried as words."""

NO_PIECE = -1


def build_reranker(
    encoder: str, tokenizer: PreTrainedTokenizerFast, strm: StrmConfig, dropout: float = 0.1
) -> Reranker:
    """Return a re-ranker with one output: MiniLM-L6 with its weights, or BERT-large's shape with random weights."""
    torch.manual_seed(13)
    words = word_table(tokenizer)
    if encoder == "minilm":
        return Reranker(load_encoder(EncoderConfig(name=MINILM, dropout=dropout), words, strm), 1)
    shape = BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    # Random initialisation of so many weights is slow on a CPU.
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        base = BertModel(shape)
    return Reranker(Encoder(base, words, strm), 1)


def random_texts(count: int, tokenizer: PreTrainedTokenizerFast, mean: int = 102, length: int = 180) -> PairTexts:
    """Return random queries and as many passages, whose pairs have a mean and a maximum length.

    The tokenizer splits their decoded texts (`decoded_pairs`) into the same word pieces again.
    """
    rng = np.random.default_rng(13)
    whole, cut = _words(tokenizer, rng)

    def ids(sizes: np.ndarray) -> Ragged:
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        # More words than needed, because some have two pieces.
        is_split = rng.random(offsets[-1]) < CONTINUATIONS / (1 - CONTINUATIONS)
        begins, goes_on = rng.choice(whole, len(is_split)), np.full(len(is_split), NO_PIECE)
        begins[is_split], goes_on[is_split] = rng.choice(cut, is_split.sum()).T
        values = np.stack([begins, goes_on], 1).ravel()
        values = values[values != NO_PIECE][: offsets[-1]]
        # A text must not begin with the continuation of a word that started in the text before.
        first = offsets[:-1]
        values[first] = np.where(np.isin(values[first], cut[:, 1]), whole[0], values[first])
        return Ragged(values.astype(np.int32), offsets)

    queries = ids(rng.integers(4, 12, count))
    template = Template.of(tokenizer, InputConfig(length=length, query_type=False))
    # Gamma-distributed lengths, and 12 % of texts at the maximum length, as in a corpus with truncated passages.
    bodies = np.where(rng.random(count) < 0.12, length, rng.gamma(4, (mean - 24) / 4, count).astype(np.int64) + 4)
    return PairTexts(template.prefixes(queries), ids(np.minimum(bodies, length)), template)


def decoded_pairs(texts: PairTexts, tokenizer: PreTrainedTokenizerFast) -> list[tuple[str, str]]:
    """Return the pairs as texts."""
    queries, passages = (
        tokenizer.batch_decode([ragged[row] for row in range(len(ragged))], skip_special_tokens=True)
        for ragged in (texts.prefixes, texts.passages)
    )
    return list(zip(queries, passages, strict=True))


def _words(tokenizer: PreTrainedTokenizerFast, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the ids of words of one piece, and of words of two pieces."""
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    are_letters = np.array([re.fullmatch("(##)?[a-z]+", piece) is not None for piece in pieces])
    goes_on = word_table(tokenizer) == CONTINUES
    whole, ends = np.flatnonzero(are_letters & ~goes_on), np.flatnonzero(are_letters & goes_on)
    tried = np.stack([rng.choice(whole, NUM_TRIED), rng.choice(ends, NUM_TRIED)], 1)
    found = tokenizer(tokenizer.batch_decode(tried), add_special_tokens=False).input_ids
    # Most pairs are split differently, because the tokenizer prefers a long first piece.
    return whole, tried[[ids == pair for ids, pair in zip(found, tried.tolist(), strict=True)]]


def write_beir(folder: Path, split: str, passages: Sequence[str], queries: Sequence[str]) -> None:
    """Write a BEIR folder in which each query has one relevant passage."""
    (folder / "qrels").mkdir(parents=True)
    for name, mark, texts in (("corpus", "p", passages), ("queries", "q", queries)):
        with (folder / f"{name}.jsonl").open("w") as stream:
            stream.writelines(json.dumps({"_id": f"{mark}{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    with (folder / "qrels" / f"{split}.tsv").open("w") as stream:
        stream.writelines(f"q{i}\tp{i % len(passages)}\t1\n" for i in range(len(queries)))
