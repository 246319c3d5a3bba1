"""The fine-tuning phases: what each learns from in an epoch, and its loss."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn

from rayrank import losses
from rayrank.config import ListwiseConfig, PointwiseConfig
from rayrank.errors import DatasetError
from rayrank.evaluation.metrics import per_query
from rayrank.modeling.batches import PairTexts
from rayrank.modeling.reranker import Reranker, relevance_score
from rayrank.modeling.scorer import Scorer, snapshot
from rayrank.records import CANDIDATES, JUDGMENTS
from rayrank.text.pairs import Rows
from rayrank.training.data import Split, TrainingData
from rayrank.training.sampling import generator, listwise_list, pointwise_pairs

DEV_METRIC = "MRR@10"
LENGTH_GROUPS, SMALLEST_GROUP = 4, 32
"""A padded batch goes through the model in so many groups of like lengths, none smaller than a device can use."""

PACKED_STEP = 256
"""Packed rows grow in such steps: products like whole blocks, and memory that was used before fits again."""


@dataclass(frozen=True)
class Inputs:
    """What is learnt from, and the texts of its rows."""

    data: TrainingData
    texts: PairTexts


def pair_logits(model: nn.Module, texts: PairTexts, query_rows: Rows, passage_rows: Rows) -> Tensor:
    """Return the model's logits for pairs of rows."""
    device = next(model.parameters()).device
    lengths = texts.lengths(query_rows, passage_rows)
    if device.type == "cuda" and unwrapped(model).encoder.packs:
        size = -(-int(lengths.sum()) // PACKED_STEP) * PACKED_STEP
        return model(texts.packed(query_rows, passage_rows, size, device))  # type: ignore[no-any-return]
    # The short go through together, so that less is padding.
    order = np.argsort(lengths, kind="stable")
    parts = np.array_split(order, max(1, min(LENGTH_GROUPS, len(order) // SMALLEST_GROUP)))
    found = [model(texts.padded(query_rows[part], passage_rows[part], device)) for part in parts]
    return torch.cat(found)[torch.from_numpy(np.argsort(order)).to(device)]


def unwrapped(model: nn.Module) -> Reranker:
    """Return the re-ranker inside a DDP wrapper."""
    inner = getattr(model, "module", model)
    assert isinstance(inner, Reranker)
    return inner


class FineTuning:
    """What the two fine-tuning phases share: training queries, and MRR@10 on dev candidates."""

    def __init__(self, inputs: Inputs, seed: int) -> None:
        self._inputs, self._seed = inputs, seed
        self._split = inputs.data.splits["train"]
        # A query without a negative or a positive has nothing to tell apart.
        self._negatives = np.array([len(self._split.negatives(place)) for place in range(len(self._split.queries))])
        self._places: list[int] = np.flatnonzero(self._negatives).tolist()
        if not self._places:
            raise DatasetError(
                "No training query has a candidate that is not judged relevant, so there is nothing to tell apart: "
                "raise candidates.depth."
            )

    def _order(self, count: int, epoch: int) -> Rows:
        # No query has this number: the stream is the epoch's own.
        return generator(self._seed, epoch, 1 << 40).permutation(count)

    def evaluate(self, model: nn.Module) -> float:
        """Return MRR@10 over dev; every rank scores its share of the queries."""
        scorer = Scorer(snapshot(unwrapped(model)), self._inputs.texts)
        return dev_metric(self._inputs.data, self._inputs.data.splits["dev"], scorer)


class Pointwise(FineTuning):
    """Pairs, relevant or not."""

    def __init__(self, inputs: Inputs, config: PointwiseConfig, seed: int) -> None:
        super().__init__(inputs, seed)
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

    def loss(self, model: nn.Module, examples: Any) -> tuple[Tensor, Tensor]:
        queries, passages, labels = examples.T
        logits = pair_logits(model, self._inputs.texts, queries, passages)
        return losses.pointwise(logits, torch.from_numpy(labels).to(logits.device)), relevance_score(logits)


class Listwise(FineTuning):
    """Lists of N+ positives and N- negatives, drawn anew each epoch."""

    def __init__(self, inputs: Inputs, config: ListwiseConfig, seed: int) -> None:
        super().__init__(inputs, seed)
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

    def loss(self, model: nn.Module, examples: list[tuple[int, Rows, Rows]]) -> tuple[Tensor, Tensor]:
        queries = np.array([query for query, _, _ in examples])
        passages, labels = (np.stack([example[column] for example in examples]) for column in (1, 2))
        present = labels >= 0
        query_rows = np.repeat(queries, present.sum(1))
        logits = relevance_score(pair_logits(model, self._inputs.texts, query_rows, passages[present]))
        marks = torch.from_numpy(labels).to(logits.device)
        scores = torch.zeros(marks.shape, device=logits.device).masked_scatter(marks >= 0, logits.float())
        return losses.listwise(scores, marks), logits


def dev_metric(data: TrainingData, split: Split, scorer: Callable[[Rows, Rows], NDArray[np.float32]]) -> float:
    """Return the mean MRR@10 of a split's candidates under a scorer; what the first stage missed counts as missed."""
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
    values = per_query(_qrels(data, split, mine), run).values[DEV_METRIC]
    if world == 1:
        return float(values.mean())
    gathered: list[Any] = [None] * world
    dist.all_gather_object(gathered, values)
    return float(np.concatenate(gathered).mean())


def _qrels(data: TrainingData, split: Split, places: Rows) -> pa.Table:
    positives = [split.positives[int(place)] for place in places]
    queries = np.repeat(split.queries[places], [len(rows) for rows in positives])
    return pa.table(
        {
            "query_id": data.query_ids.take(queries),
            "passage_id": data.passage_ids.take(np.concatenate([np.empty(0, np.int32), *positives])),
            "relevance": np.ones(len(queries), np.int32),
            "split": pa.array([""] * len(queries)),
        },
        schema=JUDGMENTS,
    )
