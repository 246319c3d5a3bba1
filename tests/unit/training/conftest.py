"""A tiny task: passages of made-up ids, relevant if they repeat the query's id."""

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core.records import JUDGMENTS
from rayrank.models.encoder import Encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.training.data import Inputs, Split, TrainingData
from rayrank.training.loop import Log

NUM_QUERIES, WORDS = 24, 12


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    # Models this small spend their time waiting for each other's threads.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Kept:
    """Checkpoints in memory; interrupts the training after some of them, as a failing machine does."""

    def __init__(self, dies_after: int | None = None) -> None:
        self.states: list[dict[str, Any]] = []
        self._dies_after = dies_after

    def load(self) -> dict[str, Any] | None:
        return self.states[-1] if self.states else None

    def save(self, state: dict[str, Any], log: Log) -> None:
        self.states.append(copy.deepcopy(state))
        if len(self.states) == self._dies_after:
            raise KeyboardInterrupt


def tiny_model(outputs: int, dropout: float) -> Reranker:
    config = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        attn_implementation="sdpa",
    )  # fmt: skip
    return Reranker(Encoder(BertModel(config), None), outputs)


def _split(rng: np.random.Generator, queries: np.ndarray, meaning: np.ndarray, passages: list[list[int]]) -> Split:
    about = np.array([passage[0] for passage in passages])
    positives, candidates = [], []
    for query in queries:
        right = np.flatnonzero(about == meaning[query])
        positives.append(rng.choice(right, 1))
        wrong = np.flatnonzero(about != meaning[query])
        candidates.append(rng.permutation(np.concatenate([positives[-1], rng.choice(wrong, 6, replace=False)])))
    return Split(queries, Ragged.of(positives), Ragged.of(candidates))


def _judgments(split: Split) -> pa.Table:
    pairs = [(q, int(p)) for row, q in enumerate(split.queries) for p in split.positives[row]]
    rows = [(f"q{query}", f"p{passage}", 1, "") for query, passage in pairs]
    return pa.Table.from_pylist([dict(zip(JUDGMENTS.names, row, strict=True)) for row in rows], JUDGMENTS)


@pytest.fixture(scope="session")
def inputs() -> Inputs:
    rng = np.random.default_rng(5)
    meaning = rng.integers(10, 10 + WORDS, NUM_QUERIES)
    passages = [[int(word), *rng.integers(25, 40, rng.integers(2, 8)).tolist()] for word in range(10, 10 + WORDS)] * 3
    splits = {
        "train": _split(rng, np.arange(16), meaning, passages),
        "dev": _split(rng, np.arange(16, NUM_QUERIES), meaning, passages),
    }
    data = TrainingData(
        pa.array([f"q{i}" for i in range(NUM_QUERIES)]),
        pa.array([f"p{i}" for i in range(len(passages))]),
        Ragged.of([[1, int(word), 2] for word in meaning]),
        Ragged.of(passages),
        splits,
        pa.concat_tables([_judgments(split) for split in splits.values()]),
    )
    return Inputs(data, PairTexts(data.prefixes, data.passages, Template(1, 2, 0, length=24, query_length=16)))
