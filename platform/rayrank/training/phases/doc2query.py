"""doc2query phase: trains a sequence-to-sequence model to generate queries for a passage. Settings: `Doc2QueryConfig`.

Examples: (passage, query) pairs judged relevant in train, which the stage stores first. Loss: cross entropy of the
query's pieces. Start: the model that `doc2query.model` names. Dev metric: minus the loss on a tenth of the queries.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import Doc2QueryConfig, PipelineConfig
from rayrank.models.batches import PaddedBatch
from rayrank.models.pretraining import IGNORED
from rayrank.models.query_writer import QueryWriter, batch_of, build
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.seq2seq import Seq2SeqTemplate
from rayrank.training import losses
from rayrank.training.draws import by_length, generator
from rayrank.training.steps import plain_model

STAGE, PHASE = "train_doc2query", "doc2query"
"""The stage's name, and the name that seeds the phase's draws."""

PAIRS = "pairs.parquet"
"""The artifact's file of the training pairs: the query's number, and the word-piece ids of passage and query."""

HELD_OUT = 0.1
"""The share of the training queries that the dev metric is measured on."""


def settings(config: PipelineConfig) -> Doc2QueryConfig:
    """Return the phase's section of the configuration."""
    return config.doc2query


def start(config: PipelineConfig, store: Store) -> tuple[QueryWriter, "QueryWriting"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    artifact, chosen = store.artifact(STAGE, config), config.doc2query
    tokenizer, pairs = load_tokenizer(artifact.local("tokenizer")), artifact.read_table(PAIRS)
    model = build(chosen, tokenizer)
    template = Seq2SeqTemplate.of(tokenizer, model.start_id, chosen.length, chosen.query_length)
    passages, queries = (Ragged.from_arrow(pairs[name]) for name in ("passage_pieces", "query_pieces"))
    return model, QueryWriting(passages, queries, pairs["query"].to_numpy(), template, chosen, config.training.seed)


class QueryBatch(NamedTuple):
    """Encoder inputs (passages), decoder inputs (queries), and the pieces that the decoder has to predict."""

    inputs: PaddedBatch
    queries: Tensor
    labels: Tensor
    """The piece after each of `queries`; `IGNORED` within the prompt and for padding."""


class QueryWriting:
    """Pairs of a passage and a query it is relevant to; the seed chooses the queries held out for the dev metric."""

    measures_start = False

    def __init__(
        self, passages: Ragged, queries: Ragged, of_query: Rows, template: Seq2SeqTemplate, config: Doc2QueryConfig,
        seed: int,
    ) -> None:  # fmt: skip
        """Take the pieces of both texts of each pair, and the number of its query."""
        self._passages, self._queries = template.passages(passages), template.queries(queries)
        self._template, self._config, self._seed = template, config, seed
        distinct = np.unique(of_query)
        num_dev = max(1, round(HELD_OUT * len(distinct)))
        held_out = np.isin(of_query, generator(seed, PHASE, 0, 0).permutation(distinct)[:num_dev])
        self.dev, self.train = np.flatnonzero(held_out), np.flatnonzero(~held_out)

    def facts(self) -> dict[str, Any]:
        return {"num_pairs": len(self.train), "num_held_out": len(self.dev)}

    def num_examples(self) -> int:
        return len(self.train)

    def examples(self, epoch: int) -> list[int]:
        """Return the pairs to train on: batches of passages of similar length, in random order."""
        # The stream of epoch 0 has chosen the held-out queries.
        rng = generator(self._seed, PHASE, epoch + 1, 0)
        return by_length(self.train, self._passages.lengths(self.train), self._config.batch_size, rng)

    def prepare(self, model: nn.Module, examples: Any) -> QueryBatch:
        """Return pairs collated on the model's device."""
        rows, device = np.asarray(examples, np.int64), next(model.parameters()).device
        passages, queries = (
            batch_of(texts, rows, self._template.pad_id).to(device) for texts in (self._passages, self._queries)
        )
        labels = queries.ids.masked_fill(queries.attention_mask == 0, IGNORED)
        labels[:, : len(self._template.prompt)] = IGNORED
        return QueryBatch(passages, queries.ids[:, :-1], labels[:, 1:])

    def loss(self, model: nn.Module, prepared: QueryBatch) -> tuple[Tensor, Tensor]:
        """Return the loss, and the logits of each query's first piece.

        These logits depend on the passage alone: if they are equal for all passages, the model ignores the passages.
        """
        logits: Tensor = model(prepared.inputs, prepared.queries)
        return losses.query_pieces(logits, prepared.labels), logits[:, len(self._template.prompt) - 1]

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return minus the summed loss of this worker's share of the held-out pairs, and the share's size."""
        device = next(model.parameters()).device
        copied = deepcopy(plain_model(model)).eval()
        share = self.dev[rank::world]
        share = share[np.argsort(self._passages.lengths(share), kind="stable")]
        size = self._config.micro_batch_size or self._config.batch_size
        total = torch.zeros((), dtype=torch.float64, device=device)
        for begin in range(0, len(share), size):
            part = share[begin : begin + size]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                total += self.loss(copied, self.prepare(copied, part))[0] * len(part)
        return -total.item(), len(share)
