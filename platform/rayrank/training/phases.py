"""The fine-tuning phases: what each learns from in an epoch, and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from rayrank.core.config import ListwiseConfig, PointwiseConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import CANDIDATES
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.batches import PackedBatch, PaddedBatch, PairTexts
from rayrank.models.inference.prepare import scoring_copy
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import relevance_score
from rayrank.text.ragged import Rows
from rayrank.training import losses
from rayrank.training.data import Split, TrainingData
from rayrank.training.sampling import generator, listwise_list, pointwise_pairs
from rayrank.training.steps import plain_model

LENGTH_GROUPS, SMALLEST_GROUP = 4, 32
"""A padded batch goes through the model in so many groups of like lengths, none smaller than a device can use."""


@dataclass(frozen=True)
class Inputs:
    """What is learnt from, and the texts of its rows."""

    data: TrainingData
    texts: PairTexts


class Groups(NamedTuple):
    """Pairs padded in groups of like lengths, so that less is padding."""

    parts: tuple[PaddedBatch, ...]
    back: Tensor
    """Where each pair is among those of all groups."""


class LabelledPairs(NamedTuple):
    """Pairs as the model reads them, and whether each is relevant."""

    inputs: PackedBatch | Groups
    labels: Tensor


class LabelledLists(NamedTuple):
    """The pairs of several lists."""

    inputs: PackedBatch | Groups
    labels: Tensor
    """(lists, length)"""
    places: Tensor
    """Which of the pairs each label is of."""


def pair_inputs(model: nn.Module, texts: PairTexts, query_rows: Rows, passage_rows: Rows) -> PackedBatch | Groups:
    """Return pairs of rows as the model learns from them."""
    device = next(model.parameters()).device
    if device.type == "cuda" and plain_model(model).encoder.packs:
        return texts.packed_for_training(query_rows, passage_rows, device)
    order = np.argsort(texts.lengths(query_rows, passage_rows), kind="stable")
    parts = np.array_split(order, max(1, min(LENGTH_GROUPS, len(order) // SMALLEST_GROUP)))
    padded = tuple(texts.padded(query_rows[part], passage_rows[part], device) for part in parts)
    return Groups(padded, torch.from_numpy(np.argsort(order)).to(device))


def pair_logits(model: nn.Module, inputs: PackedBatch | Groups) -> Tensor:
    """Return the model's logits in the order of the pairs."""
    if isinstance(inputs, PackedBatch):
        return model(inputs)  # type: ignore[no-any-return]
    return torch.cat([model(part) for part in inputs.parts])[inputs.back]


def _beside(model: nn.Module, rows: Rows) -> Tensor:
    """Return numbers where the model is."""
    return torch.from_numpy(rows).to(next(model.parameters()).device, non_blocking=True)


class FineTuning:
    """What the two fine-tuning phases share: training queries, and the metric that selects weights on dev."""

    def __init__(self, inputs: Inputs, seed: int, measure: Measure) -> None:
        self._inputs, self._seed, self._measure = inputs, seed, measure
        self._split = inputs.data.splits["train"]
        # A query without a negative or a positive has nothing to tell apart.
        self._negatives = np.array([len(self._split.negatives(place)) for place in range(len(self._split.queries))])
        self._places: list[int] = np.flatnonzero(self._negatives).tolist()
        if not self._places:
            raise DatasetError(
                "No training query has a candidate left that is not judged relevant, so there is nothing to tell "
                "apart: raise candidates.depth, or noise.threshold if it took them out."
            )

    def _order(self, count: int, epoch: int) -> Rows:
        # No query has this number: the stream is the epoch's own.
        return generator(self._seed, epoch, 1 << 40).permutation(count)

    def evaluate(self, model: nn.Module) -> float:
        """Return the mean of the metric over dev; every rank scores its share of the queries."""
        scorer = Scorer(scoring_copy(plain_model(model)), self._inputs.texts)
        return dev_metric(self._inputs.data, self._inputs.data.splits["dev"], scorer, self._measure)


class Pointwise(FineTuning):
    """Pairs, relevant or not."""

    def __init__(self, inputs: Inputs, config: PointwiseConfig, seed: int, measure: Measure = MRR_10) -> None:
        super().__init__(inputs, seed, measure)
        self._ratio = config.negatives
        places = np.array(self._places)
        positives = self._split.positives.lengths(places)
        self._size = int((positives + np.minimum(self._negatives[places], self._ratio * positives)).sum())

    def num_examples(self) -> int:
        return self._size

    def examples(self, epoch: int) -> Any:
        """Return (query row, passage row, label) of every positive and its share of negatives, a row each."""
        found = []
        for place in self._places:
            query = int(self._split.queries[place])
            rng = generator(self._seed, epoch, query)
            positives = self._split.positives[place].astype(np.int64)
            found.append(pointwise_pairs(query, positives, self._split.negatives(place), self._ratio, rng))
        columns = [np.concatenate(column) for column in zip(*found, strict=True)]
        return np.stack(columns, axis=1)[self._order(self._size, epoch)]

    def prepare(self, model: nn.Module, examples: Any) -> LabelledPairs:
        """Return pairs with a label each."""
        queries, passages, labels = examples.T
        inputs = pair_inputs(model, self._inputs.texts, queries, passages)
        return LabelledPairs(inputs, _beside(model, labels))

    def loss(self, model: nn.Module, prepared: LabelledPairs) -> tuple[Tensor, Tensor]:
        """Return the loss of the two classes."""
        logits = pair_logits(model, prepared.inputs)
        return losses.pointwise(logits, prepared.labels), relevance_score(logits)


class Listwise(FineTuning):
    """Lists of N+ positives and N- negatives, drawn anew each epoch."""

    def __init__(self, inputs: Inputs, config: ListwiseConfig, seed: int, measure: Measure = MRR_10) -> None:
        super().__init__(inputs, seed, measure)
        self._config = config

    def num_examples(self) -> int:
        return len(self._places)

    def examples(self, epoch: int) -> list[tuple[int, Rows, Rows]]:
        """Return (query row, passage rows, labels), a list a query."""
        found = []
        for place in self._places:
            query = int(self._split.queries[place])
            positives = self._split.positives[place].astype(np.int64)
            drawn = listwise_list(
                positives,
                self._split.negatives(place),
                self._config.positives,
                self._config.negatives,
                generator(self._seed, epoch, query),
            )
            found.append((query, *drawn))
        return [found[place] for place in self._order(len(found), epoch)]

    def prepare(self, model: nn.Module, examples: list[tuple[int, Rows, Rows]]) -> LabelledLists:
        """Return the pairs of all lists, and of each list the labels."""
        queries = np.array([query for query, _, _ in examples])
        passages, labels = (np.stack([example[column] for example in examples]) for column in (1, 2))
        present = labels >= 0
        # What fills a list up has the place of any pair: the loss does not look at it.
        places = np.where(present, present.ravel().cumsum().reshape(present.shape) - 1, 0)
        query_rows = np.repeat(queries, present.sum(1))
        inputs = pair_inputs(model, self._inputs.texts, query_rows, passages[present])
        return LabelledLists(inputs, _beside(model, labels), _beside(model, places))

    def loss(self, model: nn.Module, prepared: LabelledLists) -> tuple[Tensor, Tensor]:
        """Return the loss of the lists."""
        scores = relevance_score(pair_logits(model, prepared.inputs)).float()
        lists = scores.index_select(0, prepared.places.flatten()).view(prepared.places.shape)
        return losses.listwise(lists, prepared.labels), scores


def dev_metric(
    data: TrainingData, split: Split, scorer: Callable[[Rows, Rows], NDArray[np.float32]], measure: Measure
) -> float:
    """Return the mean metric of a split's candidates under a scorer; what the first stage missed counts as missed."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    mine = np.arange(rank, len(split.queries), world)
    lengths = split.candidates.lengths(mine)
    queries = np.repeat(split.queries[mine], lengths)
    # Fewer queries than workers leave some with none.
    passages = np.concatenate([[], *(split.candidates[int(place)] for place in mine)]).astype(np.int64)
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
    values = measure.values(_qrels(data, split, mine), run)
    if world == 1:
        return float(values.mean())
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, values)
    return float(np.concatenate(gathered).mean())


def _qrels(data: TrainingData, split: Split, places: Rows) -> pa.Table:
    """Return the judgments of some of a split's queries, with their grades."""
    query_ids = data.query_ids.take(split.queries[places])
    return data.judgments.filter(pc.is_in(data.judgments["query_id"], value_set=query_ids))
