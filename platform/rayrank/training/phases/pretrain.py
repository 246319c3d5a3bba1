"""Pretrain phase: masked language modelling and next-sentence prediction on the corpus. Settings: `PretrainConfig`.

Examples: every passage once per epoch, made from stored ids when a batch needs it. A passage of several sentences is
split before one of them, and its second half is kept or replaced by that of another passage; a passage of one sentence
is not split. Loss: cross entropy of the masked pieces plus, for two halves, of whether the second follows the first.
Start: the encoder that `encoder.name` names, with its heads if it has any. Dev metric: minus the loss on held-out
passages.
"""

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, PretrainConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PackedBatch, PaddedBatch, pack, pad
from rayrank.models.pretraining import IGNORED, NEXT, PretrainingModel, build
from rayrank.text.ragged import Ragged, Rows, Windows, join
from rayrank.text.sentences import sentence_table, split_sentences
from rayrank.text.stored_passages import stored_passages
from rayrank.text.template import Sequences, Template
from rayrank.text.words import word_table
from rayrank.training import losses
from rayrank.training.data import tokenizer_of
from rayrank.training.draws import EPOCH_ORDER, generator
from rayrank.training.steps import plain_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

STAGE = "pretrain"

HELD_OUT = 1 << 40
"""The epoch number of the held-out examples, which no training epoch has."""

MIN_TO_PAIR = 4
"""Minimum number of passages of several sentences for next-sentence pairs: two to train on and two held out, because a
wrong second half comes from another passage."""

SPLIT, IS_NEXT, OTHER, OTHER_SPLIT, ROUND = range(5)
"""Columns of an example's random numbers: where the passage is split, whether the second half is its own, the passage
and the split of a wrong second half, and the rounding of the number of masked pieces. Three more for each position
choose the masked positions, the kind of replacement, and the piece that replaces."""

MASKED_STEP = 64
"""The masked pieces of a packed batch are padded to a multiple of this, so that few shapes of batches occur."""

Numbers = NDArray[np.float64]


def settings(config: PipelineConfig) -> PretrainConfig:
    """Return the phase's section of the configuration."""
    return config.pretrain


def start(config: PipelineConfig, store: Store) -> tuple[PretrainingModel, "Pretraining"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    corpus, tokenizer = store.require("corpus", config), tokenizer_of(config, store)
    passages, model = stored_passages(corpus).pieces, build(config, word_table(tokenizer))
    return model, Pretraining(passages, Vocabulary.of(tokenizer), config.pretrain, config.training.seed)


@dataclass(frozen=True)
class Vocabulary:
    """The special tokens of a tokenizer and the roles of its pieces, as examples need them."""

    cls: int
    sep: int
    pad: int
    mask: int
    special: NDArray[np.bool_]
    """For every id whether it is a special token, which is never masked and never replaces a piece."""
    sentences: NDArray[np.uint8]
    """The roles of every id in sentence splitting, as bits, see `sentence_table`."""

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerFast") -> "Vocabulary":
        """Return the special tokens and roles of a tokenizer, which must have a mask token."""
        if tokenizer.mask_token_id is None:
            raise ConfigError(
                f"text.tokenizer={tokenizer.name_or_path} has no mask token: set pretrain.enabled=false, or name a "
                f"tokenizer that has one."
            )
        special = np.zeros(len(tokenizer), bool)
        special[tokenizer.all_special_ids] = True
        ids = tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id
        return cls(*ids, special, sentence_table(tokenizer))


class Batch(NamedTuple):
    """Examples as the model reads them, and their labels."""

    inputs: PaddedBatch | PackedBatch
    masked: Tensor
    """The masked positions, as indices into the flattened batch."""
    labels: Tensor
    """The pieces at the masked positions; `IGNORED` for padding."""
    of_example: Tensor
    """The example that each masked position belongs to."""
    nsp_labels: Tensor
    """For each example whether its second half follows the first: `NEXT`, `1 - NEXT`, or `IGNORED` if there is none."""

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.inputs.to(device), *(tensor.to(device, non_blocking=True) for tensor in self[1:]))


class Pretraining:
    """Every passage once per epoch, some held out for the dev metric; halves and masks are drawn anew each epoch."""

    measures_start = False

    def __init__(self, passages: Ragged, vocabulary: Vocabulary, config: PretrainConfig, seed: int) -> None:
        self._passages, self._vocabulary, self._config, self._seed = passages, vocabulary, config, seed
        special = vocabulary.cls, vocabulary.sep, vocabulary.pad
        self._template = Template(*special, length=config.length, query_length=config.length)
        self._sentences = split_sentences(passages, vocabulary.sentences)
        self._pieces = np.flatnonzero(~vocabulary.special)
        counts = self._sentences.counts
        self._num_one_sentence = int((counts == 1).sum())
        self._is_paired = counts > 1
        if self._is_paired.sum() < MIN_TO_PAIR:
            self._is_paired = np.zeros_like(self._is_paired)
        rng = generator(seed, STAGE, HELD_OUT, EPOCH_ORDER)
        held, train = [], []
        for rows in (np.flatnonzero(self._is_paired), np.flatnonzero(~self._is_paired & (counts > 0))):
            chosen = rng.choice(len(rows), min(max(16, len(rows) // 50), 512, len(rows) // 2), replace=False)
            held.append(np.sort(rows[chosen]))
            train.append(np.delete(rows, chosen))
        self._train_pool, self._held_pool = train[0], held[0]
        self._train_rows, self._held_rows = (np.sort(np.concatenate(parts)) for parts in (train, held))
        if not len(self._held_rows):
            raise ConfigError(
                f"pretrain.enabled=true needs at least 2 passages with text, one to train on and one held out, and the "
                f"corpus has {(counts > 0).sum()}: set pretrain.enabled=false."
            )

    def facts(self) -> dict[str, Any]:
        """Return the number of one-sentence passages, and a finding if there are no next-sentence pairs."""
        facts: dict[str, Any] = {"num_one_sentence": self._num_one_sentence}
        if not self._is_paired.any():
            facts["findings"] = [
                f"pretrain: no next-sentence prediction, only masked language modelling, because fewer than "
                f"{MIN_TO_PAIR} passages of the corpus have two sentences or more."
            ]
        return facts

    def num_examples(self) -> int:
        return len(self._train_rows)

    def examples(self, epoch: int) -> Any:
        """Return an array of (epoch, passage row), one row for each training passage."""
        rows = generator(self._seed, STAGE, epoch, EPOCH_ORDER).permutation(self._train_rows)
        return np.column_stack([np.full(len(rows), epoch), rows])

    def held_out(self) -> Any:
        """Return the examples that the dev metric is measured on, the same each time."""
        return np.column_stack([np.full(len(self._held_rows), HELD_OUT), self._held_rows])

    def prepare(self, model: nn.Module, examples: Any) -> Batch:
        """Return examples collated on the model's device, packed on a GPU if the encoder supports packing."""
        device, batch = next(model.parameters()).device, self.batch(examples)
        if device.type == "cuda" and plain_model(model).encoder.packs:
            batch = self._packed(batch)
        return batch.to(device)

    def loss(self, model: nn.Module, prepared: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss, and each example's logit difference of the next-sentence head, NaN without a second half."""
        mlm_logits, nsp_logits = model(prepared.inputs, prepared.masked, prepared.labels)
        loss = losses.pretraining(mlm_logits, prepared.labels, prepared.of_example, nsp_logits, prepared.nsp_labels)
        scores = nsp_logits[:, NEXT] - nsp_logits[:, 1 - NEXT]
        return loss, scores.masked_fill(prepared.nsp_labels == IGNORED, torch.nan)

    @torch.inference_mode()
    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        """Return minus the summed loss of this worker's share of the held-out examples, and the share's size."""
        device = next(model.parameters()).device
        # A copy: the model's own layers may be compiled, for the packed batches of training.
        copied = deepcopy(plain_model(model)).eval()
        share = self.held_out()[rank::world]
        size = self._config.micro_batch_size or self._config.batch_size
        total = torch.zeros((), dtype=torch.float64, device=device)
        for begin in range(0, len(share), size):
            part = share[begin : begin + size]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                total += self.loss(copied, self.batch(part).to(device))[0] * len(part)
        return -total.item(), len(share)

    def batch(self, examples: Any) -> Batch:
        """Return a padded batch; an example depends on its own random numbers only, not on the others of its batch."""
        epochs, rows = np.asarray(examples, np.int64).reshape(-1, 2).T
        width = ROUND + 1 + 3 * self._config.length
        streams = [generator(self._seed, STAGE, *pair) for pair in zip(epochs.tolist(), rows.tolist(), strict=True)]
        numbers = np.stack([stream.random(width) for stream in streams])
        pairs, nsp_labels = self._assembled(epochs, rows, numbers)
        inputs = pad(pairs, self._vocabulary.pad)
        of_positions = numbers[:, ROUND + 1 :].reshape(len(rows), 3, -1)[:, :, : inputs.ids.shape[1]]
        chosen = self._chosen(inputs, numbers[:, ROUND], of_positions[:, 0])
        masked = torch.from_numpy(np.flatnonzero(chosen))
        labels = inputs.ids.flatten()[masked]
        inputs.ids.view(-1)[masked] = torch.from_numpy(self._replaced(labels.numpy(), of_positions[:, 1:], chosen))
        return Batch(inputs, masked, labels, masked // inputs.ids.shape[1], torch.from_numpy(nsp_labels))

    def _packed(self, batch: Batch) -> Batch:
        padded = batch.inputs
        assert isinstance(padded, PaddedBatch)
        positions = padded.attention_mask.flatten().cumsum(0) - 1
        spare = (0, -len(batch.masked) % MASKED_STEP)
        return Batch(
            pack(padded, self._template),
            functional.pad(positions[batch.masked], spare),
            functional.pad(batch.labels, spare, value=IGNORED),
            functional.pad(batch.of_example, spare),
            batch.nsp_labels,
        )

    def _assembled(self, epochs: Rows, rows: Rows, numbers: Numbers) -> tuple[Sequences, Rows]:
        """Return `[CLS] A [SEP] B [SEP]` of each example, `[CLS] A [SEP]` of an unsplit passage, and their labels."""
        bounds, offsets = self._sentences.bounds, self._sentences.offsets
        paired, is_next = self._is_paired[rows], numbers[:, IS_NEXT] < 0.5
        # An unsplit passage is all first half: its middle is its end, and its second half is empty.
        middles = np.where(paired, self._split(rows, numbers[:, SPLIT]), offsets[rows + 1])
        others = rows.copy()
        others[paired] = self._others(epochs[paired], rows[paired], numbers[paired, OTHER])
        # A wrong second half is drawn in the same way as a true one, so that they differ only in content.
        seconds = np.where(is_next | ~paired, middles, self._split(others, numbers[:, OTHER_SPLIT]))
        last = offsets[np.where(is_next, rows, others) + 1]
        values, middle, second = self._passages.values, bounds[middles], bounds[seconds]
        first_half = middle - bounds[offsets[rows]]
        before, after = self._template.halves(first_half, bounds[last] - second)
        # A long unsplit passage is truncated to a random window. Of two halves, the first keeps its end and the second
        # its beginning.
        middle = middle - np.where(paired, 0, _below(numbers[:, SPLIT], first_half - before + 1))
        prefixes = self._template.prefixes(Windows(values, middle - before, middle))
        pairs = self._template.pairs(prefixes, Windows(values, second, second + after))
        # The separator behind an empty second half is left out.
        ids = join(pairs.ids.truncate(pairs.ids.lengths() - ~paired))
        labels = np.where(paired, np.where(is_next, NEXT, 1 - NEXT), IGNORED)
        return Sequences(ids, pairs.prefix_lengths), labels

    def _split(self, rows: Rows, numbers: Numbers) -> Rows:
        """Return the random sentence before which each passage is split; meaningless for a passage of one sentence."""
        first, last = self._sentences.offsets[rows], self._sentences.offsets[rows + 1]
        return first + 1 + _below(numbers, last - first - 1)

    def _others(self, epochs: Rows, rows: Rows, numbers: Numbers) -> Rows:
        """Return for each passage another passage with several sentences, held out if the passage is held out."""
        others = np.empty_like(rows)
        for pool, mine in ((self._train_pool, epochs != HELD_OUT), (self._held_pool, epochs == HELD_OUT)):
            drawn = _below(numbers[mine], np.full(mine.sum(), len(pool) - 1))
            # Skipping the passage itself leaves all others equally likely.
            others[mine] = pool[drawn + (drawn >= np.searchsorted(pool, rows[mine]))]
        return others

    def _chosen(self, inputs: PaddedBatch, rounding: Numbers, keys: Numbers) -> NDArray[np.bool_]:
        """Return the positions to mask: a share `pretrain.masked` of those without a special token, at least one."""
        free = ~self._vocabulary.special[inputs.ids.numpy()] & (inputs.attention_mask.numpy() > 0)
        num_free = free.sum(1)
        # Rounded at random, so that the share is right on average for short texts, too.
        count = np.minimum(np.maximum((num_free * self._config.masked + rounding).astype(np.int64), 1), num_free)
        ranks = np.where(free, keys, np.inf).argsort(1).argsort(1)
        chosen: NDArray[np.bool_] = ranks < count[:, None]
        return chosen

    def _replaced(self, labels: Rows, numbers: Numbers, chosen: NDArray[np.bool_]) -> Rows:
        """Return the ids that replace masked pieces: 80 % the mask token, 10 % any piece, 10 % the piece itself."""
        choice, piece = numbers[:, 0][chosen], numbers[:, 1][chosen]
        drawn = self._pieces[_below(piece, np.full(len(piece), len(self._pieces)))]
        return np.where(choice < 0.8, self._vocabulary.mask, np.where(choice < 0.9, drawn, labels))


def _below(numbers: Numbers, limits: Rows) -> Rows:
    """Return integers from 0 to below the limits, from uniform numbers of [0, 1)."""
    # A product just below a limit may be rounded to it.
    return np.minimum((numbers * limits).astype(np.int64), limits - 1)
