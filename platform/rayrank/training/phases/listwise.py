"""Listwise phase: trains the model to score a query's positives above its negatives. Settings: `ListwiseConfig`.

Examples: one list per training query, drawn anew each epoch from its relevant passages and from the other candidates
that the noise filter keeps. Loss: that of `listwise.loss`, by default the negative log likelihood of the positives
within their list; with a teacher (`listwise.teacher`), mixed with a loss of its scores. Start: the pointwise
model with one output instead of two, or an encoder with a randomly initialised head (`listwise.start`,
`listwise.head`). Dev metric: `training.metric` of the dev queries' first-stage candidates, ordered by the model.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import ListwiseConfig, PipelineConfig, TrainingConfig
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.batches import PackedBatch
from rayrank.models.reranker import Reranker, listwise_head, relevance_score
from rayrank.models.saved import load_reranker
from rayrank.text.ragged import Rows
from rayrank.training.data import Inputs
from rayrank.training.draws import draw, draw_by_weight
from rayrank.training.layer_rates import with_frozen_parts
from rayrank.training.list_losses import LOSSES
from rayrank.training.noise import relabelled, training_candidates
from rayrank.training.phases.fine_tuning import (
    FineTuning,
    PairGroups,
    collate_inputs,
    join_candidates,
    pair_logits,
    pretrained_encoder,
    to_device_of,
    with_dev_queries,
    word_table_of,
)
from rayrank.training.teacher import Teacher, teacher_of
from rayrank.training.teacher_losses import TEACHER_LOSSES

STAGE = "listwise"


def settings(config: PipelineConfig) -> ListwiseConfig:
    """Return the phase's section of the configuration."""
    return config.listwise


def start(config: PipelineConfig, store: Store) -> tuple[Reranker, "Listwise"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    inputs = _chosen_inputs(config, store)
    teacher = teacher_of(STAGE, config, store, inputs.data)
    phase = Listwise(inputs, config.listwise, config.listwise.seeded(config.training), Measure.of(config), teacher)
    return with_frozen_parts(_first_model(config, store), config.listwise), phase


def _first_model(config: PipelineConfig, store: Store) -> Reranker:
    """Return the model that the phase starts from."""
    words = word_table_of(config, store)
    if config.listwise.continued and config.listwise.round_before:
        before = store.require(f"{STAGE}@{config.listwise.round_before}", config)
        return load_reranker(before, config.strm, words).train()
    if config.listwise.start == "encoder":
        return Reranker(pretrained_encoder(config, store), num_outputs=1)
    model = load_reranker(store.require("pointwise", config), config.strm, words).train()
    if config.listwise.head == "fresh":
        return Reranker(model.encoder, num_outputs=1)
    listwise_head(model)
    return model


def _chosen_inputs(config: PipelineConfig, store: Store) -> Inputs:
    """Return inputs with the candidates that lists are drawn from, and all candidates of dev to measure on."""
    train, added = training_candidates(config, store), relabelled(config, store)
    return with_dev_queries(join_candidates(config, store, train, added), config)


class LabelledLists(NamedTuple):
    """The pairs of several lists and the labels of each list."""

    inputs: PackedBatch | PairGroups
    labels: Tensor
    """(lists, length): the grade of a positive (1 if all have the same), 0 for a negative, -1 for padding."""
    pair_indices: Tensor
    """(lists, length): the index of each passage's pair in `inputs`; that of any pair for padding."""
    taught: Tensor | None = None
    """(lists, length): the teacher's scores, NaN for a passage without one; None without a teacher."""


class Listwise(FineTuning):
    """One list per training query, with `listwise.positives` and `listwise.negatives`, drawn anew each epoch."""

    def __init__(
        self, inputs: Inputs, config: ListwiseConfig, training: TrainingConfig, measure: Measure = MRR_10,
        teacher: Teacher | None = None,
    ) -> None:  # fmt: skip
        # Each round draws anew.
        super().__init__(STAGE if config.rounds == 1 else f"{STAGE}{config.rounds}", inputs, training, measure)
        self._config, self._teacher = config, teacher
        continues = config.continued and config.rounds > 1
        self.measures_start = continues or (config.start == "pointwise" and config.head == "difference")

    def num_examples(self) -> int:
        return len(self.query_indices)

    def examples(self, epoch: int) -> list[tuple[int, Rows, Rows]]:
        """Return (query row, passage rows, labels) of each list."""
        found = []
        for index in self.query_indices:
            query, positives = int(self.split.queries[index]), self.split.positives[index].astype(np.int64)
            grades = (
                self.split.grades[index].astype(np.int64) if self.split.grades else np.ones(len(positives), np.int64)
            )
            rng = self.generator(epoch, query)
            found.append((query, *query_list(positives, grades, self.split.negatives(index), self._config, rng)))
        return [found[position] for position in self.order(len(found), epoch)]

    def prepare(self, model: nn.Module, examples: list[tuple[int, Rows, Rows]]) -> LabelledLists:
        """Return examples collated on the model's device."""
        queries = np.array([query for query, _, _ in examples])
        passages, labels = (np.stack([example[column] for example in examples]) for column in (1, 2))
        present = labels >= 0
        # The loss masks the padding of a list, so its index may be that of any pair.
        pair_indices = np.where(present, present.ravel().cumsum().reshape(present.shape) - 1, 0)
        query_rows = np.repeat(queries, present.sum(1))
        inputs = collate_inputs(model, self.inputs, query_rows, passages[present])
        taught = None
        if self._teacher:
            # Padding is in no loss, whatever its score.
            scores = self._teacher.scores(np.repeat(queries, passages.shape[1]), passages.ravel())
            taught = to_device_of(model, scores.reshape(passages.shape) / np.float32(self._config.temperature))
        return LabelledLists(inputs, to_device_of(model, labels), to_device_of(model, pair_indices), taught)

    def loss(self, model: nn.Module, prepared: LabelledLists) -> tuple[Tensor, Tensor]:
        """Return the loss of the lists, and the pairs' scores."""
        scores = relevance_score(pair_logits(model, prepared.inputs)).float()
        lists = scores.index_select(0, prepared.pair_indices.flatten()).view(prepared.pair_indices.shape)
        loss = LOSSES[self._config.loss](lists, prepared.labels)
        if prepared.taught is None:
            return loss, scores
        of_teacher = TEACHER_LOSSES[self._config.teacher_loss](lists, prepared.labels, prepared.taught)
        return torch.lerp(loss, of_teacher, self._config.teacher_weight), scores

    def facts(self) -> dict[str, Any]:
        taught = {"taught": self._teacher.shares(self.split, self.query_indices)} if self._teacher else {}
        return {**super().facts(), **taught}


def query_list(
    positives: Rows, grades: Rows, negatives: Rows, config: ListwiseConfig, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Return the passage rows of one list and their labels; a short list is padded with row 0 and label -1.

    Positives are drawn with probabilities proportional to their grades.
    """
    chosen = draw_by_weight(np.arange(len(positives)), grades, config.positives, rng)
    drawn = draw(negatives, config.negatives, rng)
    passages = np.zeros(config.positives + config.negatives, np.int64)
    labels = np.full(len(passages), -1, np.int64)
    passages[: len(chosen)], labels[: len(chosen)] = positives[chosen], grades[chosen]
    end = len(chosen) + len(drawn)
    passages[len(chosen) : end], labels[len(chosen) : end] = drawn, 0
    return passages, labels
