"""Pointwise phase: classifies one pair of query and passage at a time as relevant or not. Settings: `PointwiseConfig`.

Examples: every positive of a training query, each with `pointwise.negatives` of the query's other candidates.
Loss: cross entropy of the two classes, irrelevant and relevant. Start: the pre-trained encoder and a randomly
initialised head. Dev metric: `training.metric` of the dev queries' first-stage candidates, ordered by the model.
"""

from typing import Any, NamedTuple

import numpy as np
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, PointwiseConfig, TrainingConfig
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.batches import PackedBatch
from rayrank.models.reranker import Reranker, relevance_score
from rayrank.text.ragged import Rows
from rayrank.training import losses
from rayrank.training.data import Inputs
from rayrank.training.draws import draw
from rayrank.training.phases.fine_tuning import (
    FineTuning,
    PairGroups,
    join_candidates,
    pair_logits,
    pretrained_encoder,
    to_device_of,
    with_dev_queries,
)

STAGE = "pointwise"


def settings(config: PipelineConfig) -> PointwiseConfig:
    """Return the phase's section of the configuration."""
    return config.pointwise


def start(config: PipelineConfig, store: Store) -> tuple[Reranker, "Pointwise"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    inputs = with_dev_queries(join_candidates(config, store), config)
    phase = Pointwise(inputs, config.pointwise, config.training, Measure.of(config))
    return Reranker(pretrained_encoder(config, store), num_outputs=2), phase


class LabelledPairs(NamedTuple):
    """Pairs and their labels, 1 for a relevant passage."""

    inputs: PackedBatch | PairGroups
    labels: Tensor


class Pointwise(FineTuning):
    """Pairs of all training queries, the negatives drawn anew each epoch."""

    def __init__(
        self, inputs: Inputs, config: PointwiseConfig, training: TrainingConfig, measure: Measure = MRR_10
    ) -> None:
        super().__init__(STAGE, inputs, training, measure)
        self._ratio = config.negatives
        num_positives = self.split.positives.lengths(np.array(self.query_indices))
        num_negatives = np.minimum(self.num_negatives[self.query_indices], self._ratio * num_positives)
        self._num_pairs = int((num_positives + num_negatives).sum())

    def num_examples(self) -> int:
        return self._num_pairs

    def examples(self, epoch: int) -> Any:
        """Return an array of (query row, passage row, label), one row per pair."""
        found = []
        for index in self.query_indices:
            query, positives = int(self.split.queries[index]), self.split.positives[index].astype(np.int64)
            rng = self.generator(epoch, query)
            found.append(query_pairs(query, positives, self.split.negatives(index), self._ratio, rng))
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        return np.stack(columns, axis=1)[self.order(self._num_pairs, epoch)]

    def prepare(self, model: nn.Module, examples: Any) -> LabelledPairs:
        """Return examples collated on the model's device."""
        queries, passages, labels = examples.T
        inputs = self.collate(model, queries, passages)
        return LabelledPairs(inputs, to_device_of(model, labels))

    def loss(self, model: nn.Module, prepared: LabelledPairs) -> tuple[Tensor, Tensor]:
        """Return the loss of the two classes, and the pairs' scores."""
        logits = pair_logits(model, prepared.inputs)
        return losses.pointwise(logits, prepared.labels), relevance_score(logits)


def query_pairs(
    query: int, positives: Rows, negatives: Rows, ratio: int, rng: np.random.Generator
) -> tuple[Rows, Rows, Rows]:
    """Return every positive of a query and `ratio` negatives for each: query rows, passage rows, labels."""
    drawn = draw(negatives, ratio * len(positives), rng)
    passages = np.concatenate([positives, drawn])
    labels = np.zeros(len(passages), np.int64)
    labels[: len(positives)] = 1
    return np.full(len(passages), query), passages, labels
