"""Models and inputs of the shapes that are compared everywhere; weights and words do not matter for speed."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rayrank.core.config import MINILM, EncoderConfig, InputConfig, StrmConfig
from rayrank.models.batches import PairTexts
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.reranker import Reranker
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import CONTINUES, word_table

ENCODERS = ("large", "minilm")
CONTINUED = 0.15
"""Share of pieces that go on with a word, as in English text under BERT's vocabulary."""

TRIED, NOTHING = 20_000, -1


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
    """Return as many queries as passages; their pairs, row by row, have a mean length and a longest one.

    Written out as words (`as_words`), they are taken apart into the same pieces again.
    """
    rng = np.random.default_rng(13)
    whole, cut = _words(tokenizer, rng)

    def ids(sizes: np.ndarray) -> Ragged:
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        # Enough of them, whichever have two pieces.
        is_cut = rng.random(offsets[-1]) < CONTINUED / (1 - CONTINUED)
        begins, goes_on = rng.choice(whole, len(is_cut)), np.full(len(is_cut), NOTHING)
        begins[is_cut], goes_on[is_cut] = rng.choice(cut, is_cut.sum()).T
        values = np.stack([begins, goes_on], 1).ravel()
        values = values[values != NOTHING][: offsets[-1]]
        # What a cut word begins with is a word; what is left of it at the start of the next text is none.
        first = offsets[:-1]
        values[first] = np.where(np.isin(values[first], cut[:, 1]), whole[0], values[first])
        return Ragged(values.astype(np.int32), offsets)

    queries = ids(rng.integers(4, 12, count))
    template = Template.of(tokenizer, InputConfig(length=length, query_type=False))
    # Two thirds of a bell and a third of texts that are cut, so that lengths spread as passages' do.
    bodies = np.where(rng.random(count) < 0.12, length, rng.gamma(4, (mean - 24) / 4, count).astype(np.int64) + 4)
    return PairTexts(template.prefixes(queries), ids(np.minimum(bodies, length)), template)


def as_words(texts: PairTexts, tokenizer: PreTrainedTokenizerFast) -> list[tuple[str, str]]:
    """Return such pairs as text."""
    queries, passages = (
        tokenizer.batch_decode([ragged[row] for row in range(len(ragged))], skip_special_tokens=True)
        for ragged in (texts.prefixes, texts.passages)
    )
    return list(zip(queries, passages, strict=True))


def _words(tokenizer: PreTrainedTokenizerFast, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return words of one piece, and of two."""
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    are_letters = np.array([re.fullmatch("(##)?[a-z]+", piece) is not None for piece in pieces])
    goes_on = word_table(tokenizer) == CONTINUES
    whole, ends = np.flatnonzero(are_letters & ~goes_on), np.flatnonzero(are_letters & goes_on)
    tried = np.stack([rng.choice(whole, TRIED), rng.choice(ends, TRIED)], 1)
    found = tokenizer(tokenizer.batch_decode(tried), add_special_tokens=False).input_ids
    # Most are taken apart elsewhere: the tokenizer prefers a long first piece.
    return whole, tried[[ids == pair for ids, pair in zip(found, tried.tolist(), strict=True)]]


def write_beir(folder: Path, split: str, passages: Sequence[str], queries: Sequence[str]) -> None:
    """Write a BEIR folder in which each query has one judged passage."""
    (folder / "qrels").mkdir(parents=True)
    for name, mark, texts in (("corpus", "p", passages), ("queries", "q", queries)):
        with (folder / f"{name}.jsonl").open("w") as stream:
            stream.writelines(json.dumps({"_id": f"{mark}{i}", "text": text}) + "\n" for i, text in enumerate(texts))
    with (folder / "qrels" / f"{split}.tsv").open("w") as stream:
        stream.writelines(f"q{i}\tp{i % len(passages)}\t1\n" for i in range(len(queries)))
