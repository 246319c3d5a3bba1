"""The phase that learns the types of queries: labelled questions, cross entropy over the types."""

from typing import NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, StrmConfig
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import load_encoder
from rayrank.models.query_typer import batch_of, most_likely
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template
from rayrank.training.sampling import generator
from rayrank.training.steps import plain_model

HELD_OUT = 0.1
"""The share of the questions that is measured on and not learnt from."""
POOL = 16
"""Batches whose questions are sorted by length together: half of a batch of random questions would be padding."""


class Typed(NamedTuple):
    """Questions and their types."""

    inputs: PaddedBatch
    labels: Tensor


class QueryTyping:
    """Questions of known type; the dev metric is the accuracy on a tenth of them that the seed chooses."""

    def __init__(self, questions: Ragged, labels: Rows, *, batch_size: int, pad_id: int, seed: int) -> None:
        """Take `[CLS] question [SEP]` ids and the number of each one's type."""
        self._questions, self._labels, self._pad_id, self._seed = questions, labels, pad_id, seed
        self._batch_size = batch_size
        order = generator(seed, 0, 0).permutation(len(questions))
        held_out = max(1, round(HELD_OUT * len(questions)))
        self.dev, self.train = np.sort(order[:held_out]), np.sort(order[held_out:])

    def num_examples(self) -> int:
        return len(self.train)

    def examples(self, epoch: int) -> list[int]:
        """Return the rows to learn from, batches of similar length in random order."""
        # Epochs count from 1 here: stream 0 has chosen the held-out questions.
        rng, size = generator(self._seed, epoch + 1, 0), self._batch_size
        whole = len(self.train) // size * size
        rows, rest = np.split(rng.permutation(self.train), [whole])
        for start in range(0, whole, size * POOL):
            pool = rows[start : start + size * POOL]
            pool[:] = pool[np.argsort(self._questions.lengths(pool), kind="stable")]
        batches = rng.permutation(rows.reshape(-1, size))
        mixed: list[int] = np.concatenate([batches.ravel(), rest]).tolist()
        return mixed

    def prepare(self, model: nn.Module, examples: list[int]) -> Typed:
        """Return the questions where the model is."""
        rows, device = np.array(examples, np.int64), next(model.parameters()).device
        inputs = batch_of(self._questions, rows, self._pad_id).to(device)
        return Typed(inputs, torch.from_numpy(self._labels[rows]).to(device))

    def loss(self, model: nn.Module, prepared: Typed) -> tuple[Tensor, Tensor]:
        """Return the loss of the types, and what the model makes of each."""
        logits: Tensor = model(prepared.inputs)
        return cross_entropy(logits, prepared.labels), logits

    def evaluate(self, model: nn.Module) -> float:
        """Return the accuracy on the held-out questions; every rank answers its share."""
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        mine = self.dev[rank::world]
        right = int((most_likely(plain_model(model), self._questions, mine, self._pad_id) == self._labels[mine]).sum())
        counts = [right]
        if world > 1:
            counts = [0] * world
            dist.all_gather_object(counts, right)
        return sum(counts) / len(self.dev)


def setup(config: PipelineConfig, store: Store) -> tuple[Reranker, QueryTyping]:
    """Return the model and the questions of a worker; the stage has stored the questions before."""
    artifact = store.artifact("query_typer", config)
    types, table = artifact.read_json("types.json"), artifact.read_table("questions.parquet")
    tokenizer = load_tokenizer(artifact.local("tokenizer"))
    template = Template.of_queries(tokenizer, config.text.query_pieces)
    questions = template.prefixes(Ragged.from_arrow(table["piece_ids"]))
    # Plain attention: there is no second text whose words have to be matched.
    model = Reranker(load_encoder(config.encoder, None, StrmConfig(form="off")), len(types))
    size, seed = config.typer.batch_size, config.training.seed
    labels = table["type"].to_numpy().astype(np.int64)
    return model, QueryTyping(questions, labels, batch_size=size, pad_id=template.pad_id, seed=seed)
