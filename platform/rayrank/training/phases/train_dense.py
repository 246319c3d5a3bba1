"""Dense phase: trains the bi-encoder of the dense first stage. Settings: `TrainDenseConfig`.

Examples: a training query, one of its positives, and `train_dense.negatives` hard negatives: candidates of another
first stage that are not judged relevant. Loss: cross entropy of the positive among all passages of the batch (in-batch
negatives), without other passages that are judged relevant to the query. Start: the sentence encoder that
`dense.encoder` names. Dev metric: `training.metric` of the dev queries' candidates of the other first stage, ordered by
the model.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, TrainDenseConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.data.pair_set import PairSet
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.batches import PackedBatch
from rayrank.models.inference.embedder import Embedder
from rayrank.models.inference.prepare import scoring_copy
from rayrank.models.pair_texts import PairTexts
from rayrank.models.sentence_encoder import SentenceEncoder, load_sentence_encoder, sentence_settings
from rayrank.scores.noise_filter import removed
from rayrank.text.ragged import Rows
from rayrank.text.sentence_texts import PASSAGE, QUERY, SentenceInputs
from rayrank.text.template import Template
from rayrank.training import losses
from rayrank.training.data import TrainingData, load, read_candidates, tokenizer_of
from rayrank.training.draws import EPOCH_ORDER, draw, generator
from rayrank.training.phases.fine_tuning import PairGroups, collate_pairs, dev_values, pair_logits
from rayrank.training.steps import plain_model

STAGE = "train_dense"

PAIRS_AT_ONCE = 100_000
"""Pairs whose vectors are copied at a time to compute their dot products."""

GROUP_TOKENS = 8192
"""Tokens of the texts that a CPU encodes at a time, about 3 GB of activations for a six-layer encoder."""


def settings(config: PipelineConfig) -> TrainDenseConfig:
    """Return the phase's section of the configuration."""
    return config.train_dense


def start(config: PipelineConfig, store: Store) -> tuple[SentenceEncoder, "TrainDense"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    found = store.require(flow.run_node(config.train_dense.first_stage, config), config)
    corpus, tokenizer = store.require("corpus", config), tokenizer_of(config, store)
    candidates = {"train": _training_candidates(config, store), "dev": read_candidates(found, "dev")}
    template = Template.of_one_text(tokenizer, config.text.query_pieces)
    data = load(corpus, None, template, tokenizer, candidates, config.dataset.relevant_from)
    chosen = sentence_settings(config.dense)
    inputs = SentenceInputs.of(
        config.dense.encoder,
        corpus.local("tokenizer"),
        [chosen.query_prefix, chosen.passage_prefix],
        config.dense.length,
    )
    queries = inputs.pieces(corpus.read_table("queries.parquet", [inputs.column])).truncate(config.text.query_pieces)
    # Queries and passages are rows of one array, so that a batch of both is put together at once.
    texts = PairTexts(inputs.prefixes, queries + inputs.read(corpus), inputs.template)
    splits = {**data.splits, "dev": data.splits["dev"].sample(config.training.dev_queries)}
    if not len(splits["dev"].candidates.values):
        raise DatasetError(
            f"train_dense.first_stage={config.train_dense.first_stage} has no candidates of dev queries, so no encoder "
            f"can be measured: name a first stage that has, with --set train_dense.first_stage=..."
        )
    phase = TrainDense(texts, data, splits, config.train_dense, config.training, Measure.of(config))
    return load_sentence_encoder(config.dense), phase


def _training_candidates(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    """Yield the training candidates, without those that the noise filter removes if `train_dense.noise_run` is set."""
    name = config.train_dense.noise_run or config.train_dense.first_stage
    rows = read_candidates(store.require(flow.run_node(name, config, train=True), config), "train")
    if not config.train_dense.noise_run:
        yield from rows
        return
    judged = PairSet(store.require("corpus", config).read_table("judgments.parquet"))
    for scored in rows:
        gone = removed(scored["score"].to_numpy(), judged.marks(scored), config.train_dense.noise_threshold)
        yield scored.filter(pa.array(~gone))


class QueriesWithPassages(NamedTuple):
    """A batch of queries, then their positives, then their hard negatives, and which passages the loss leaves out."""

    inputs: PackedBatch | PairGroups
    excluded: Tensor
    """(queries, passages): other passages that are judged relevant to the query, and missing negatives."""


class TrainDense:
    """One example per training query, whose positive and hard negatives are drawn anew each epoch."""

    measures_start = True

    def __init__(
        self, texts: PairTexts, data: TrainingData, splits: dict[str, Any], config: TrainDenseConfig,
        training: TrainingConfig, measure: Measure = MRR_10,
    ) -> None:  # fmt: skip
        self._texts, self._data, self._splits, self._config = texts, data, splits, config
        self._seed, self._measure = training.seed, measure
        self._split = splits["train"]
        self._num_queries = len(data.query_ids)
        if len(self._split.queries) < 2:
            raise DatasetError(
                "Fewer than two training queries have a relevant passage, but in-batch negatives are the passages of "
                "other queries: add judged training queries, or use a first stage without train_dense."
            )

    def num_examples(self) -> int:
        return len(self._split.queries)

    def examples(self, epoch: int) -> list[tuple[int, Rows]]:
        """Return (query's index in the split, rows of its positive and its negatives); a missing negative is -1."""
        found = []
        for index, query in enumerate(self._split.queries.tolist()):
            rng = generator(self._seed, STAGE, epoch, query)
            rows = np.full(1 + self._config.negatives, -1, np.int64)
            rows[0] = rng.choice(self._split.positives[index])
            negatives = draw(self._split.negatives(index), self._config.negatives, rng)
            rows[1 : 1 + len(negatives)] = negatives
            found.append((index, rows))
        order = generator(self._seed, STAGE, epoch, EPOCH_ORDER).permutation(len(found))
        return [found[position] for position in order]

    def prepare(self, model: nn.Module, examples: list[tuple[int, Rows]]) -> QueriesWithPassages:
        """Return examples collated on the model's device."""
        indices = np.array([index for index, _ in examples])
        # Positives first, so that the positive of query i is passage i.
        passages = np.stack([rows for _, rows in examples]).T.ravel()
        excluded = np.stack([np.isin(passages, self._split.positives[index]) for index in indices])
        np.fill_diagonal(excluded, False)
        excluded[:, passages < 0] = True
        # A missing negative is masked, so any passage may stand for it.
        text_rows = np.concatenate([self._split.queries[indices], self._num_queries + np.maximum(passages, 0)])
        prefix_rows = np.repeat([QUERY, PASSAGE], [len(indices), len(passages)])
        inputs = collate_pairs(model, self._texts, prefix_rows, text_rows, GROUP_TOKENS)
        device = next(model.parameters()).device
        return QueriesWithPassages(inputs, torch.from_numpy(excluded).to(device, non_blocking=True))

    def loss(self, model: nn.Module, prepared: QueriesWithPassages) -> tuple[Tensor, Tensor]:
        """Return the loss of the batch, and the dot product of each query with its positive."""
        vectors = self._vectors(model, prepared.inputs).float()
        queries, passages = vectors[: len(prepared.excluded)], vectors[len(prepared.excluded) :]
        with torch.autocast(vectors.device.type, enabled=False):
            scores = queries @ passages.T
        return losses.in_batch(scores / self._config.temperature, prepared.excluded), scores.diagonal()

    def _vectors(self, model: nn.Module, inputs: PackedBatch | PairGroups) -> Tensor:
        if isinstance(inputs, PackedBatch):
            return pair_logits(model, inputs)
        # Gradient checkpointing, group by group: the loss compares all passages of the batch, and the activations of a
        # whole batch would not fit into the memory of many machines.
        parts = [checkpoint(model, part, use_reentrant=False) for part in inputs.parts]
        return torch.cat(parts)[inputs.positions]

    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return the sum of the dev metric over this worker's share of the dev queries, and the share's size."""
        dev = self._splits["dev"]
        share = dev.take(np.arange(rank, len(dev.queries), world))
        copied: Any = scoring_copy(plain_model(model))
        embed = Embedder(copied, self._texts)
        values = dev_values(self._data, share, lambda *rows: self._dot_products(embed, *rows), self._measure)
        return float(values.sum()), len(values)

    def _dot_products(self, embed: Embedder, queries: Rows, passages: Rows) -> NDArray[np.float32]:
        """Return the dot product of each pair; each text is embedded once."""
        if not len(queries):  # the dev queries of this worker may have no candidates
            return np.empty(0, np.float32)
        query_rows, of_query = np.unique(queries, return_inverse=True)
        passage_rows, of_passage = np.unique(passages, return_inverse=True)
        text_rows = np.concatenate([query_rows, self._num_queries + passage_rows])
        vectors = embed(np.repeat([QUERY, PASSAGE], [len(query_rows), len(passage_rows)]), text_rows)
        first, second = vectors[: len(query_rows)], vectors[len(query_rows) :]
        # In slices, because copies of the vectors of all pairs may not fit into memory.
        slices = [slice(begin, begin + PAIRS_AT_ONCE) for begin in range(0, len(queries), PAIRS_AT_ONCE)]
        return np.concatenate(
            [np.einsum("ij,ij->i", first[of_query[part]], second[of_passage[part]]) for part in slices]
        )

    def facts(self) -> dict[str, Any]:
        return {}
