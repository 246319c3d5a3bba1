"""Pointwise phase: classifies one pair of query and passage at a time as relevant or not. Settings: `PointwiseConfig`.

Examples: every positive of a training query, each with `pointwise.negatives` of the query's other candidates; or with
`pointwise.pairs=judged` every judged pair. Loss: cross entropy of the two classes, irrelevant and relevant; with a
teacher (`pointwise.teacher`), the label is mixed with the probability that the teacher gives the pair. Start: the
pre-trained encoder and a randomly initialised head. Dev metric: `training.metric` of the dev queries' first-stage
candidates, ordered by the model; with judged pairs, the share of dev pairs that the model classifies correctly.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, PointwiseConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.data.ids import PairLookup
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.batches import PackedBatch
from rayrank.models.inference.prepare import scoring_copy
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import Reranker, relevance_score
from rayrank.scores.noise_filter import probabilities
from rayrank.text.ragged import Rows
from rayrank.training import losses
from rayrank.training.data import Inputs, TrainingData, inputs_of
from rayrank.training.draws import EPOCH_ORDER, draw, generator
from rayrank.training.layer_rates import with_frozen_parts
from rayrank.training.phases.fine_tuning import (
    FineTuning,
    PairGroups,
    collate_inputs,
    join_candidates,
    pair_logits,
    pretrained_encoder,
    to_device_of,
    with_dev_queries,
)
from rayrank.training.steps import plain_model
from rayrank.training.teacher import Teacher, teacher_of

STAGE = "pointwise"


def settings(config: PipelineConfig) -> PointwiseConfig:
    """Return the phase's section of the configuration."""
    return config.pointwise


def start(config: PipelineConfig, store: Store) -> tuple[Reranker, "LabelledPhase"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    phase: LabelledPhase
    if config.pointwise.pairs == "judged":
        phase = JudgedPairs(inputs_of(config, store, {}), config)
    else:
        inputs = with_dev_queries(join_candidates(config, store), config)
        training, teacher = config.pointwise.seeded(config.training), teacher_of(STAGE, config, store, inputs.data)
        phase = Pointwise(inputs, config.pointwise, training, Measure.of(config), teacher)
    return with_frozen_parts(Reranker(pretrained_encoder(config, store), num_outputs=2), config.pointwise), phase


class LabelledPairs(NamedTuple):
    """Pairs and their labels: 1 for a relevant passage, or with a teacher the probability of relevance."""

    inputs: PackedBatch | PairGroups
    labels: Tensor


class PairClassification:
    """How labelled pairs are collated, and their loss."""

    inputs: Inputs

    def prepare(self, model: nn.Module, examples: Any) -> LabelledPairs:
        """Return examples collated on the model's device."""
        queries, passages, labels = examples.T
        inputs = collate_inputs(model, self.inputs, queries, passages)
        return LabelledPairs(inputs, to_device_of(model, self.targets(queries, passages, labels)))

    def targets(self, queries: Rows, passages: Rows, labels: Rows) -> NDArray[Any]:
        """Return what the loss compares the model's classes with."""
        return labels

    def loss(self, model: nn.Module, prepared: LabelledPairs) -> tuple[Tensor, Tensor]:
        """Return the loss of the two classes, and the pairs' scores."""
        logits = pair_logits(model, prepared.inputs)
        return losses.pointwise(logits, prepared.labels), relevance_score(logits)


class Pointwise(PairClassification, FineTuning):
    """Pairs of all training queries, the negatives drawn anew each epoch."""

    def __init__(
        self, inputs: Inputs, config: PointwiseConfig, training: TrainingConfig, measure: Measure = MRR_10,
        teacher: Teacher | None = None,
    ) -> None:  # fmt: skip
        super().__init__(STAGE, inputs, training, measure)
        self._config, self._teacher, self._ratio = config, teacher, config.negatives
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

    def targets(self, queries: Rows, passages: Rows, labels: Rows) -> NDArray[Any]:
        """Return the labels, mixed with the teacher's probabilities of the pairs that it has scored."""
        if not self._teacher:
            return labels
        # The loss is linear in its targets, so mixing them is the same as mixing the losses of labels and teacher.
        taught = probabilities(self._teacher.scores(queries, passages) / np.float32(self._config.temperature))
        mixed = labels + self._config.teacher_weight * (taught - labels)
        return np.where(np.isnan(taught), labels, mixed).astype(np.float32)

    def facts(self) -> dict[str, Any]:
        taught = {"taught": self._teacher.shares(self.split, self.query_indices)} if self._teacher else {}
        return {**super().facts(), **taught}


class JudgedPairs(PairClassification):
    """Every judged pair of the training queries, in an order that is drawn anew each epoch."""

    measures_start = False

    def __init__(self, inputs: Inputs, config: PipelineConfig) -> None:
        self.inputs, self._seed = inputs, config.pointwise.seeded(config.training).seed
        self.train, dev = (judged_pairs(inputs.data, split, config.dataset.relevant_from) for split in ("train", "dev"))
        for split, pairs in (("train", self.train), ("dev", dev)):
            num_relevant = int(pairs[:, 2].sum())
            if not 0 < num_relevant < len(pairs):
                raise DatasetError(
                    f"pointwise.pairs=judged needs judged pairs that are relevant and others that are not: the split "
                    f"{split} has {num_relevant:,} and {len(pairs) - num_relevant:,}; add judgments, or set "
                    f"pointwise.pairs=candidates."
                )
        most = config.training.dev_queries or len(dev)
        self.dev = dev[np.arange(most) * len(dev) // most] if most < len(dev) else dev

    def num_examples(self) -> int:
        return len(self.train)

    def examples(self, epoch: int) -> Any:
        """Return an array of (query row, passage row, label), one row per pair."""
        return self.train[generator(self._seed, STAGE, epoch, EPOCH_ORDER).permutation(len(self.train))]

    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return the number of correctly classified pairs in this worker's share of dev, and the share's size."""
        queries, passages, labels = self.dev[rank::world].T
        score = self.inputs.scorer(Scorer(scoring_copy(plain_model(model)), self.inputs.texts))
        scores = score(queries, passages)
        return float(((scores > 0) == (labels == 1)).sum()), len(labels)

    def facts(self) -> dict[str, Any]:
        return {"dev_metric": "accuracy"}


LabelledPhase = Pointwise | JudgedPairs


def judged_pairs(data: TrainingData, split: str, relevant_from: int) -> Rows:
    """Return an array of (query row, passage row, label) of a split's judged pairs, label 1 for relevant ones."""
    judgments = data.judgments.filter(pc.equal(data.judgments["split"], split))
    queries, passages = PairLookup(data.query_ids, data.passage_ids)(judgments)
    labels = judgments["relevance"].to_numpy() >= relevant_from
    return np.stack([queries, passages, labels.astype(np.int64)], axis=1)


def query_pairs(
    query: int, positives: Rows, negatives: Rows, ratio: int, rng: np.random.Generator
) -> tuple[Rows, Rows, Rows]:
    """Return every positive of a query and `ratio` negatives for each: query rows, passage rows, labels."""
    drawn = draw(negatives, ratio * len(positives), rng)
    passages = np.concatenate([positives, drawn])
    labels = np.zeros(len(passages), np.int64)
    labels[: len(positives)] = 1
    return np.full(len(passages), query), passages, labels
