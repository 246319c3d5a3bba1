"""What phases that train on query-passage pairs share: candidates, how pairs are collated, and the dev metric."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import CANDIDATES
from rayrank.data.rows import ranks_within_query
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.inference.prepare import scoring_copy
from rayrank.models.inference.scorer import Scorer
from rayrank.models.inference.window_scorer import PairScores
from rayrank.models.pair_texts import PairTexts
from rayrank.models.saved import load_pretrained
from rayrank.text.markers import num_ids
from rayrank.text.ragged import Rows
from rayrank.text.words import word_table
from rayrank.training.data import Inputs, Split, TrainingData, inputs_of, read_candidates, tokenizer_of
from rayrank.training.draws import EPOCH_ORDER, generator
from rayrank.training.steps import plain_model

LENGTH_GROUPS, SMALLEST_GROUP = 4, 32
"""A batch that is not packed is padded in up to four groups of similar length, of at least 32 pairs each."""


class PairGroups(NamedTuple):
    """Pairs sorted by length and padded in several groups, which need less padding than one."""

    parts: tuple[PaddedBatch, ...]
    positions: Tensor
    """For each pair of the batch its position in the concatenated groups."""


def collate_pairs(
    model: nn.Module, texts: PairTexts, query_rows: Rows, passage_rows: Rows, group_tokens: int | None = None
) -> PackedBatch | PairGroups:
    """Return pairs as the model trains on them: packed on a GPU if the encoder supports it, else padded in groups.

    Groups have about `group_tokens` tokens each; without it there are at most LENGTH_GROUPS.
    """
    device = next(model.parameters()).device
    if device.type == "cuda" and plain_model(model).encoder.packs:
        return texts.packed_for_training(query_rows, passage_rows, device)
    inputs = texts.inputs(query_rows, passage_rows, device)
    order = np.argsort(inputs.lengths, kind="stable")
    most = int(inputs.lengths.sum()) // group_tokens if group_tokens else LENGTH_GROUPS
    parts = np.array_split(order, max(1, min(most, len(order) // SMALLEST_GROUP)))
    return PairGroups(tuple(map(inputs.padded, parts)), torch.from_numpy(np.argsort(order)).to(device))


def collate_inputs(
    model: nn.Module, inputs: Inputs, query_rows: Rows, passage_rows: Rows
) -> PackedBatch | PairGroups:  # fmt: skip
    """Return queries with passages as the model trains on them; a passage of several windows is represented by one."""
    if inputs.window_choice:
        passage_rows = inputs.window_choice(query_rows, passage_rows, next(model.parameters()).device)
    return collate_pairs(model, inputs.texts, query_rows, passage_rows)


def pair_logits(model: nn.Module, inputs: PackedBatch | PairGroups) -> Tensor:
    """Return the model's logits in the order of the pairs."""
    if isinstance(inputs, PackedBatch):
        return model(inputs)  # type: ignore[no-any-return]
    return torch.cat([model(part) for part in inputs.parts])[inputs.positions]


def to_device_of(model: nn.Module, values: NDArray[Any]) -> Tensor:
    """Return an array as a tensor on the model's device."""
    return torch.from_numpy(values).to(next(model.parameters()).device, non_blocking=True)


class FineTuning:
    """The training queries that have negatives, and the dev metric; a subclass draws examples and has a loss."""

    measures_start = False

    def __init__(self, phase: str, inputs: Inputs, training: TrainingConfig, measure: Measure = MRR_10) -> None:
        """Take the phase's name, which seeds its draws, and the measure that selects the best weights."""
        self.phase, self.inputs, self._seed, self._measure = phase, inputs, training.seed, measure
        self.split = inputs.data.splits["train"]
        # A query without negatives is left out: its list has nothing to rank, and its pairs are all of one class.
        self.num_negatives = np.array([len(self.split.negatives(index)) for index in range(len(self.split.queries))])
        self.query_indices: list[int] = np.flatnonzero(self.num_negatives).tolist()
        """The indices, in the split, of the queries to train on."""
        if not self.query_indices:
            raise DatasetError(
                "No training query has a negative, which is a candidate that is not judged relevant: raise "
                "candidates.depth, or noise.threshold if the noise filter removed them (or lower noise.margin, or "
                "widen listwise.negative_ranks)."
            )

    def generator(self, epoch: int, row: int) -> np.random.Generator:
        """Return the random stream of a query in an epoch of this phase."""
        return generator(self._seed, self.phase, epoch, row)

    def order(self, count: int, epoch: int) -> Rows:
        """Return the random order of an epoch's examples."""
        return self.generator(epoch, EPOCH_ORDER).permutation(count)

    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return the sum of the dev metric over this worker's share of the dev queries, and the share's size."""
        dev = self.inputs.data.splits["dev"]
        share = dev.take(np.arange(rank, len(dev.queries), world))
        scorer = self.inputs.scorer(self.scorer(model))
        values = dev_values(self.inputs.data, share, scorer, self._measure)
        return float(values.sum()), len(values)

    def scorer(self, model: nn.Module) -> Scorer:
        """Return the scorer of the dev queries' candidates."""
        return Scorer(scoring_copy(plain_model(model)), self.inputs.texts)

    def facts(self) -> dict[str, Any]:
        dev = self.inputs.data.splits["dev"]
        return {"first_stage_dev": dev_metric(self.inputs.data, dev, first_stage_scores, self._measure)}


def first_stage_scores(queries: Rows, passages: Rows) -> NDArray[np.float32]:
    """Return scores that keep the order of the candidates, which are each query's best first."""
    # Counted within each query: dev may have more pairs than the 16.7 million whole numbers that float32 tells apart.
    return -ranks_within_query(queries).astype(np.float32)


def dev_metric(data: TrainingData, split: Split, scorer: PairScores, measure: Measure) -> float:
    """Return the mean of the dev metric over the queries of a split."""
    return float(dev_values(data, split, scorer, measure).mean())


def dev_values(data: TrainingData, split: Split, scorer: PairScores, measure: Measure) -> NDArray[np.float64]:
    """Return the metric of each query's candidates ordered by a scorer; relevant passages outside them are missed."""
    if not len(split.queries):  # a worker has none if there are more workers than dev queries
        return np.empty(0)
    queries = np.repeat(split.queries, split.candidates.lengths(np.arange(len(split.queries))))
    passages = split.candidates.values.astype(np.int64)
    scores = scorer(queries, passages)
    run = pa.table(
        {
            "query_id": data.query_ids.take(queries),
            "passage_id": data.passage_ids.take(passages),
            "rank": np.ones(len(scores), np.int32),
            "score": scores,
        },
        schema=CANDIDATES,
    )
    judged = pc.is_in(data.judgments["query_id"], value_set=data.query_ids.take(split.queries))
    return measure.values(data.judgments.filter(judged), run)


def join_candidates(
    config: PipelineConfig, store: Store, train: Iterable[pa.Table] | None = None, added: pa.Table | None = None
) -> Inputs:
    """Return inputs with the first stage's candidates of train and dev; `train` replaces those of train.

    `added` are judgments that count as the dataset's own do.
    """
    found = store.require("candidates", config)
    train = read_candidates(found, "train") if train is None else train
    return inputs_of(config, store, {"train": train, "dev": read_candidates(found, "dev")}, added=added)


def with_dev_queries(inputs: Inputs, config: PipelineConfig) -> Inputs:
    """Return inputs with at most `training.dev_queries` in dev."""
    if not len(inputs.data.splits["train"].queries):
        raise DatasetError(
            f"The dataset {config.dataset.source} has no judged training queries: training needs a train split with "
            f"grades of dataset.relevant_from={config.dataset.relevant_from} or more."
        )
    dev = inputs.data.splits["dev"].sample(config.training.dev_queries)
    if not len(dev.candidates.values):
        raise DatasetError(
            f"No judged dev query of the dataset {config.dataset.source} has candidates, so no model can be measured: "
            f"add candidates of the dev split, or remove the dev split's judgments so that a share of the training "
            f"queries (dataset.holdout={config.dataset.holdout:g}) becomes dev."
        )
    return replace(inputs, data=replace(inputs.data, splits={**inputs.data.splits, "dev": dev}))


def word_table_of(config: PipelineConfig, store: Store) -> NDArray[np.int8]:
    """Return the table of word starts of the corpus's tokenizer."""
    return word_table(tokenizer_of(config, store))


def pretrained_encoder(config: PipelineConfig, store: Store) -> Encoder:
    """Return the encoder of the pretrain phase, or without that phase the one that `encoder.name` names.

    It has embeddings for the markers that its inputs may have.
    """
    words = word_table_of(config, store)
    if config.pretrain.enabled:
        encoder = load_pretrained(store.require("pretrain", config), config.strm, words)
    else:
        encoder = load_encoder(config.encoder, words, config.strm)
    if config.input.markers:
        encoder.add_ids(num_ids(tokenizer_of(config, store), config.input), 2 * config.input.markers)
    return encoder
