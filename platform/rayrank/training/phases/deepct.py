"""DeepCT phase: trains the model that predicts how much each word of a passage matters. Settings: `DeepCtConfig`.

Examples: the passages relevant to training queries, which the stage stores first, in windows of `deepct.length` pieces.
Loss: squared error between the weight of a word's first piece and the word's query-term recall. Start: the encoder that
`encoder.name` names with plain attention, and a randomly initialised head. Dev metric: minus the mean squared error of
the words of a tenth of the passages.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import DeepCtConfig, PipelineConfig, StrmConfig
from rayrank.core.errors import DatasetError
from rayrank.models.architectures import check_length
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import load_encoder
from rayrank.models.term_weights import TermWeights, batch_of
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template
from rayrank.training import losses
from rayrank.training.data import tokenizer_of
from rayrank.training.draws import EPOCH_ORDER, generator
from rayrank.training.steps import plain_model

STAGE = "train_deepct"
EXAMPLES = "examples.parquet"
"""The artifact's file of windows: the number of their passage, their pieces, and one target for each piece."""

NO_WORD = -1.0
"""The target of a piece that begins no word."""
HELD_OUT = 0.1
"""The share of the passages that the dev metric is measured on."""


def settings(config: PipelineConfig) -> DeepCtConfig:
    """Return the phase's section of the configuration."""
    return config.deepct


def template_of(config: PipelineConfig, store: Store) -> Template:
    """Return the template of the model's inputs, `[CLS] window [SEP]`."""
    return Template.of_one_text(tokenizer_of(config, store), config.deepct.length - 2)


def start(config: PipelineConfig, store: Store) -> tuple[TermWeights, "DeepCt"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    table = store.artifact(STAGE, config).read_table(EXAMPLES)
    examples = Examples(
        table["passage"].to_numpy(),
        Ragged.from_arrow(table["piece_ids"]),
        np.asarray(Ragged.from_arrow(table["targets"]).flat(), np.float32),
    )
    # Plain attention: STRM is for matching the words of two texts, and here there is one.
    encoder = load_encoder(config.encoder, None, StrmConfig(form="off"))
    check_length(encoder.base, config.deepct.length, "deepct.length", config.encoder.name)
    phase = DeepCt(examples, template_of(config, store), config.deepct, config.training.seed)
    return TermWeights(encoder), phase


class Examples(NamedTuple):
    """Windows of passages, each with at least one word."""

    passages: Rows
    """The number of each window's passage."""
    windows: Ragged
    targets: NDArray[np.float32]
    """For each piece of the windows its word's query-term recall, or `NO_WORD`."""


class TermWeightBatch(NamedTuple):
    """Windows as the model reads them, and the target at each position."""

    inputs: PaddedBatch | PackedBatch
    targets: Tensor


class DeepCt:
    """Windows with known weights; the seed chooses the tenth of the passages that is held out for the dev metric."""

    measures_start = False

    def __init__(self, examples: Examples, template: Template, config: DeepCtConfig, seed: int) -> None:
        self._template, self._config, self._seed = template, config, seed
        self._inputs = template.prefixes(examples.windows)
        # [CLS] and [SEP] begin no word.
        is_piece = np.ones(len(self._inputs.values), bool)
        is_piece[self._inputs.starts] = is_piece[self._inputs.stops - 1] = False
        self._targets = np.full(len(is_piece), NO_WORD, np.float32)
        self._targets[is_piece] = examples.targets
        passages = np.unique(examples.passages)
        if len(passages) < 2:
            raise DatasetError(
                f"DeepCT needs at least 2 passages that are relevant to training queries, one to train on and one held "
                f"out, and the dataset has {len(passages)}: add judgments of the train split."
            )
        order = generator(seed, STAGE, 0, EPOCH_ORDER).permutation(passages)
        self._held_out = order[: max(1, round(HELD_OUT * len(order)))]
        is_dev = np.isin(examples.passages, self._held_out)
        self.train, self.dev = np.flatnonzero(~is_dev), np.flatnonzero(is_dev)
        self._num_train_passages = len(passages) - len(self._held_out)
        self._train_words, self._dev_words = (self._targets_of(rows) for rows in (self.train, self.dev))

    def _targets_of(self, rows: Rows) -> NDArray[np.float32]:
        """Return the targets of all words of some windows."""
        found = self._laid_out(rows)
        return found[found >= 0]

    def _laid_out(self, rows: Rows) -> NDArray[np.float32]:
        """Return the targets of some inputs, special tokens included, one input after another."""
        starts, stops = self._inputs.starts[rows].tolist(), self._inputs.stops[rows].tolist()
        return np.concatenate([self._targets[start:stop] for start, stop in zip(starts, stops, strict=True)])

    def facts(self) -> dict[str, Any]:
        """Return the sizes, and the dev metric of giving every word the mean target of the training words."""
        mean = float(self._train_words.mean())
        return {
            "num_train_passages": self._num_train_passages,
            "num_dev_passages": len(self._held_out),
            "num_train_words": len(self._train_words),
            "mean_target": mean,
            "dev_of_mean": -float(np.square(self._dev_words - mean, dtype=np.float64).mean()),
        }

    def num_examples(self) -> int:
        return len(self.train)

    def examples(self, epoch: int) -> Any:
        """Return the windows to train on, in random order."""
        # The stream of epoch 0 has chosen the held-out passages.
        return generator(self._seed, STAGE, epoch + 1, EPOCH_ORDER).permutation(self.train)

    def prepare(self, model: nn.Module, examples: Any) -> TermWeightBatch:
        """Return examples collated on the model's device, packed on a GPU if the encoder supports packing."""
        device = next(model.parameters()).device
        batch = self.batch(examples, packed=device.type == "cuda" and plain_model(model).encoder.packs)
        return TermWeightBatch(batch.inputs.to(device), batch.targets.to(device, non_blocking=True))

    def batch(self, examples: Any, packed: bool) -> TermWeightBatch:
        """Return examples as a padded batch or as a packed row, on the CPU."""
        rows = np.asarray(examples, np.int64)
        inputs = batch_of(self._inputs, rows, self._template, packed)
        # Padding begins no word either.
        targets = torch.full(inputs.ids.shape, NO_WORD)
        found = torch.from_numpy(self._laid_out(rows))
        if isinstance(inputs, PackedBatch):
            targets[: len(found)] = found
        else:
            targets[inputs.attention_mask.bool()] = found
        return TermWeightBatch(inputs, targets)

    def loss(self, model: nn.Module, prepared: TermWeightBatch) -> tuple[Tensor, Tensor]:
        """Return the loss, and the weight at each position, NaN where no word begins."""
        weights: Tensor = model(prepared.inputs)
        expected = prepared.inputs.num_inputs * len(self._train_words) / len(self.train)
        loss = losses.term_weights(weights, prepared.targets, expected)
        return loss, weights.masked_fill(prepared.targets < 0, torch.nan).flatten()

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return minus the summed squared error of the words in this worker's share of dev, and the number of words."""
        device = next(model.parameters()).device
        # A copy: the model's own layers may be compiled, for the packed batches of training.
        copied = deepcopy(plain_model(model)).eval()
        share, size = self.dev[rank::world], self._config.micro_batch_size or self._config.batch_size
        share = share[np.argsort(self._inputs.lengths(share), kind="stable")]
        total, num_words = torch.zeros((), dtype=torch.float64, device=device), 0
        for begin in range(0, len(share), size):
            rows = share[begin : begin + size]
            prepared = self.prepare(copied, rows)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                total += losses.term_weights(copied(prepared.inputs), prepared.targets, num_words=1)
            num_words += len(self._targets_of(rows))
        return -total.item(), num_words
