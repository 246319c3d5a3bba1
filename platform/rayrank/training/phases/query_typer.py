"""Query typer phase: trains the classifier that predicts the type of a query. Settings: `TyperConfig`.

Examples: labelled questions, which the stage stores first. Loss: cross entropy over the types. Start: the encoder that
`encoder.name` names with plain attention, and a randomly initialised head. Dev metric: accuracy on a tenth of the
questions.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, StrmConfig, TyperConfig
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import load_encoder
from rayrank.models.query_typer import NAMES, batch_of, most_likely
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template
from rayrank.training import losses
from rayrank.training.draws import by_length, generator
from rayrank.training.steps import plain_model

STAGE = "query_typer"
QUESTIONS = "questions.parquet"
"""The artifact's file of the questions: their word-piece ids, and the numbers of their types."""

HELD_OUT = 0.1
"""The share of the questions that the dev metric is measured on."""


def settings(config: PipelineConfig) -> TyperConfig:
    """Return the phase's section of the configuration."""
    return config.typer


def start(config: PipelineConfig, store: Store) -> tuple[Reranker, "QueryTyping"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    artifact = store.artifact(STAGE, config)
    types, table = artifact.read_json(NAMES), artifact.read_table(QUESTIONS)
    tokenizer = load_tokenizer(artifact.local("tokenizer"))
    template = Template.of_one_text(tokenizer, config.text.query_pieces)
    questions = template.prefixes(Ragged.from_arrow(table["piece_ids"]))
    # Plain attention: STRM is for matching the words of two texts, and here there is one.
    model = Reranker(load_encoder(config.encoder, None, StrmConfig(form="off")), len(types))
    size, seed = config.typer.batch_size, config.training.seed
    labels = table["type"].to_numpy().astype(np.int64)
    return model, QueryTyping(questions, labels, batch_size=size, pad_id=template.pad_id, seed=seed)


class TypedQuestions(NamedTuple):
    """Questions and the numbers of their types."""

    inputs: PaddedBatch
    labels: Tensor


class QueryTyping:
    """Questions of known type; the seed chooses the tenth that is held out for the dev metric."""

    measures_start = False

    def __init__(self, questions: Ragged, labels: Rows, *, batch_size: int, pad_id: int, seed: int) -> None:
        """Take `[CLS] question [SEP]` ids and the number of each one's type."""
        self._questions, self._labels, self._pad_id, self._seed = questions, labels, pad_id, seed
        self._batch_size = batch_size
        order = generator(seed, STAGE, 0, 0).permutation(len(questions))
        num_dev = max(1, round(HELD_OUT * len(questions)))
        self.dev, self.train = np.sort(order[:num_dev]), np.sort(order[num_dev:])

    def num_examples(self) -> int:
        return len(self.train)

    def examples(self, epoch: int) -> list[int]:
        """Return the rows to train on: batches of similar length, in random order."""
        # The stream of epoch 0 has chosen the dev questions.
        rng = generator(self._seed, STAGE, epoch + 1, 0)
        return by_length(self.train, self._questions.lengths(self.train), self._batch_size, rng)

    def prepare(self, model: nn.Module, examples: list[int]) -> TypedQuestions:
        """Return examples collated on the model's device."""
        rows, device = np.array(examples, np.int64), next(model.parameters()).device
        inputs = batch_of(self._questions, rows, self._pad_id).to(device)
        return TypedQuestions(inputs, torch.from_numpy(self._labels[rows]).to(device))

    def loss(self, model: nn.Module, prepared: TypedQuestions) -> tuple[Tensor, Tensor]:
        """Return the loss of the types, and the logits of each question."""
        logits: Tensor = model(prepared.inputs)
        return losses.query_types(logits, prepared.labels), logits

    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return the number of correctly classified questions in this worker's share of dev, and the share's size."""
        rows = self.dev[rank::world]
        found = most_likely(plain_model(model), self._questions, rows, self._pad_id)
        return float((found == self._labels[rows]).sum()), len(rows)

    def facts(self) -> dict[str, Any]:
        return {}
