"""Pre-training on the corpus itself: masked pieces and next sentences, made from stored ids as they are needed."""

from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rayrank.core.config import PretrainConfig
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PackedBatch, PaddedBatch, pack, pad
from rayrank.models.pretraining import IGNORED, NEXT
from rayrank.text.ragged import Ragged, Rows, Windows
from rayrank.text.sentences import cut, sentence_table
from rayrank.text.template import Sequences, Template
from rayrank.training import losses
from rayrank.training.sampling import generator
from rayrank.training.steps import plain_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

HELD_OUT = 1 << 40
"""The epoch of the held-out examples, and the row of an epoch's own stream: no training epoch, no passage."""

SPLIT, TRUE, OTHER, PLACE, ROUND = range(5)
"""What an example's first random numbers decide; then come three for each position."""

MASKED_STEP = 64
"""In a packed batch masked pieces are filled up to a multiple of this, so that many batches have as many."""

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Vocabulary:
    """What making examples needs to know of a tokenizer."""

    cls: int
    sep: int
    pad: int
    mask: int
    special: NDArray[np.bool_]
    """For every id whether it is a special token: neither masked nor put in the place of a piece."""
    sentences: NDArray[np.uint8]

    @classmethod
    def of(cls, tokenizer: "PreTrainedTokenizerFast") -> "Vocabulary":
        """Return a tokenizer's own."""
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
    """Examples as the model takes them, and what it should find."""

    inputs: PaddedBatch | PackedBatch
    masked: Tensor
    """The masked positions, counted through the batch."""
    labels: Tensor
    """What was there; `IGNORED` fills up to a number that many batches have."""
    of_example: Tensor
    is_next: Tensor

    def to(self, device: torch.device) -> "Batch":
        return Batch(self.inputs.to(device), *(tensor.to(device, non_blocking=True) for tensor in self[1:]))


class Pretraining:
    """Each passage once an epoch: cut in two at one of its sentences, its second half kept or swapped for another's."""

    def __init__(self, passages: Ragged, vocabulary: Vocabulary, config: PretrainConfig, seed: int) -> None:
        self._passages, self._vocabulary, self._config, self._seed = passages, vocabulary, config, seed
        special = vocabulary.cls, vocabulary.sep, vocabulary.pad
        self._template = Template(*special, length=config.length, query_length=config.length)
        self._sentences = cut(passages, vocabulary.sentences)
        self._pieces = np.flatnonzero(~vocabulary.special)
        rows = np.flatnonzero(self._sentences.counts > 1)
        if len(rows) < 4:
            # Two to learn from and two to measure: the false second half is another passage's.
            raise ConfigError(
                f"pretrain.enabled=true needs at least 4 passages of two sentences or more, and the corpus has "
                f"{len(rows)}: set pretrain.enabled=false."
            )
        held = min(max(16, len(rows) // 50), 512, len(rows) // 2)
        chosen = generator(seed, HELD_OUT, HELD_OUT).choice(len(rows), held, replace=False)
        self._held_rows = np.sort(rows[chosen])
        self._train_rows = np.delete(rows, chosen)

    def num_examples(self) -> int:
        return len(self._train_rows)

    def examples(self, epoch: int) -> Any:
        """Return (epoch, passage row) of every training passage; an array, which the loop slices as it would a list."""
        rows = generator(self._seed, epoch, HELD_OUT).permutation(self._train_rows)
        return np.column_stack([np.full(len(rows), epoch), rows])

    def held_out(self) -> Any:
        """Return the examples that are measured, always the same and never learnt."""
        return np.column_stack([np.full(len(self._held_rows), HELD_OUT), self._held_rows])

    def prepare(self, model: nn.Module, examples: Any) -> Batch:
        """Return the examples where the model is, end to end if it reads them so."""
        device, batch = next(model.parameters()).device, self.batch(examples)
        if device.type == "cuda" and plain_model(model).encoder.packs:
            batch = self._packed(batch)
        return batch.to(device)

    def loss(self, model: nn.Module, prepared: Batch) -> tuple[Tensor, Tensor]:
        """Return the loss, and as scores by how much each pair's halves seem to belong together."""
        mlm_logits, nsp_logits = model(prepared.inputs, prepared.masked, prepared.labels)
        loss = losses.pretraining(mlm_logits, prepared.labels, prepared.of_example, nsp_logits, prepared.is_next)
        return loss, nsp_logits[:, NEXT] - nsp_logits[:, 1 - NEXT]

    @torch.inference_mode()
    def evaluate(self, model: nn.Module) -> float:
        """Return minus the loss on the held-out examples; every rank computes its share."""
        rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        device = next(model.parameters()).device
        # A copy is never compiled, and the graphs of training are not for padded batches.
        copied = deepcopy(plain_model(model)).eval()
        mine = self.held_out()[rank::world]
        size = self._config.micro_batch_size or self._config.batch_size
        total = torch.zeros((), dtype=torch.float64, device=device)
        for start in range(0, len(mine), size):
            part = mine[start : start + size]
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                total += self.loss(copied, self.batch(part).to(device))[0] * len(part)
        if world > 1:
            dist.all_reduce(total)
        return -total.item() / len(self._held_rows)

    def batch(self, examples: Any) -> Batch:
        """Return examples made from their own random numbers, whatever the batch they are in."""
        epochs, rows = np.asarray(examples, np.int64).reshape(-1, 2).T
        width = ROUND + 1 + 3 * self._config.length
        numbers = np.stack(
            [generator(self._seed, *pair).random(width) for pair in zip(epochs.tolist(), rows.tolist(), strict=True)]
        )
        pairs, is_next = self._pairs(epochs, rows, numbers)
        inputs = pad(pairs, self._vocabulary.pad)
        places = numbers[:, ROUND + 1 :].reshape(len(rows), 3, -1)[:, :, : inputs.ids.shape[1]]
        chosen = self._chosen(inputs, numbers[:, ROUND], places[:, 0])
        masked = torch.from_numpy(np.flatnonzero(chosen))
        labels = inputs.ids.flatten()[masked]
        inputs.ids.view(-1)[masked] = torch.from_numpy(self._replaced(labels.numpy(), places[:, 1:], chosen))
        return Batch(inputs, masked, labels, masked // inputs.ids.shape[1], torch.from_numpy(is_next))

    def _packed(self, batch: Batch) -> Batch:
        padded = batch.inputs
        assert isinstance(padded, PaddedBatch)
        places = padded.attention_mask.flatten().cumsum(0) - 1
        spare = (0, -len(batch.masked) % MASKED_STEP)
        return Batch(
            pack(padded, self._template),
            functional.pad(places[batch.masked], spare),
            functional.pad(batch.labels, spare, value=IGNORED),
            functional.pad(batch.of_example, spare),
            batch.is_next,
        )

    def _pairs(self, epochs: Rows, rows: Rows, numbers: Numbers) -> tuple[Sequences, NDArray[np.bool_]]:
        """Return `[CLS] A [SEP] B [SEP]` of each example, and whether B is what follows A."""
        bounds, offsets = self._sentences.bounds, self._sentences.offsets
        is_next = numbers[:, TRUE] < 0.5
        middles = self._split(rows, numbers[:, SPLIT])
        others = self._others(epochs, rows, numbers[:, OTHER])
        # Drawn as a true one is, so that nothing but the content tells them apart.
        seconds = np.where(is_next, middles, self._split(others, numbers[:, PLACE]))
        last = offsets[np.where(is_next, rows, others) + 1]
        values, middle, second = self._passages.values, bounds[middles], bounds[seconds]
        before, after = self._template.halves(middle - bounds[offsets[rows]], bounds[last] - second)
        # A is cut at its start: its end is next to B.
        prefixes = self._template.prefixes(Windows(values, middle - before, middle))
        return self._template.pairs(prefixes, Windows(values, second, second + after)), is_next

    def _split(self, rows: Rows, numbers: Numbers) -> Rows:
        """Return a sentence of each passage that is not its first."""
        first, last = self._sentences.offsets[rows], self._sentences.offsets[rows + 1]
        return first + 1 + _below(numbers, last - first - 1)

    def _others(self, epochs: Rows, rows: Rows, numbers: Numbers) -> Rows:
        """Return another passage for each; held-out ones for the held-out, so that these are never learnt."""
        others = np.empty_like(rows)
        for pool, mine in ((self._train_rows, epochs != HELD_OUT), (self._held_rows, epochs == HELD_OUT)):
            drawn = _below(numbers[mine], np.full(mine.sum(), len(pool) - 1))
            # Stepping over the passage itself leaves all others equally likely.
            others[mine] = pool[drawn + (drawn >= np.searchsorted(pool, rows[mine]))]
        return others

    def _chosen(self, inputs: PaddedBatch, rounding: Numbers, keys: Numbers) -> NDArray[np.bool_]:
        """Return which positions to guess: a share of those that hold no special token, one at least."""
        free = ~self._vocabulary.special[inputs.ids.numpy()] & (inputs.attention_mask.numpy() > 0)
        num_free = free.sum(1)
        # Rounded at random: short texts too have their share masked on average.
        count = np.minimum(np.maximum((num_free * self._config.masked + rounding).astype(np.int64), 1), num_free)
        ranks = np.where(free, keys, np.inf).argsort(1).argsort(1)
        chosen: NDArray[np.bool_] = ranks < count[:, None]
        return chosen

    def _replaced(self, labels: Rows, numbers: Numbers, chosen: NDArray[np.bool_]) -> Rows:
        """Return what stands in the place of masked pieces: 80 % the mask, 10 % any piece, 10 % the piece itself."""
        fate, which = numbers[:, 0][chosen], numbers[:, 1][chosen]
        drawn = self._pieces[_below(which, np.full(len(which), len(self._pieces)))]
        return np.where(fate < 0.8, self._vocabulary.mask, np.where(fate < 0.9, drawn, labels))


def _below(numbers: Numbers, limits: Rows) -> Rows:
    """Return whole numbers from 0 to below the limits, from uniform ones."""
    # A product just below a limit may be rounded to it.
    return np.minimum((numbers * limits).astype(np.int64), limits - 1)
