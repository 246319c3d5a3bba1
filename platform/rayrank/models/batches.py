"""Batches as the encoder reads them, padded to rectangles or packed end to end, put together where the model is."""

import warnings
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rayrank.text.pairs import Pairs, Ragged, Rows, pair_lengths

SHORT = 32
"""Inputs are taken to be this long at least, on average."""

FEW = 2**22
"""Ids of a few batches, not of a corpus: so many may lie in memory that a GPU reads by itself."""


class PaddedBatch(NamedTuple):
    """Inputs of one batch, padded to its longest."""

    ids: Tensor
    attention_mask: Tensor
    token_types: Tensor

    def to(self, device: torch.device) -> "PaddedBatch":
        return PaddedBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_inputs(self) -> int:
        # Not its len, which a traced graph would keep for ever.
        return self.ids.shape[0]

    def firsts(self) -> Tensor:
        """Return where each input begins, counted through the batch row after row."""
        rows, width = self.ids.shape
        return torch.arange(rows, device=self.ids.device) * width


class PackedBatch(NamedTuple):
    """Inputs of one batch laid end to end in one row; what fills the row up counts as sequences of its own."""

    ids: Tensor
    token_types: Tensor
    seq: Tensor
    """The number of each position's sequence."""
    offsets: Tensor
    """Where each sequence begins, filling included, and the row's length, once or more often."""
    num_inputs: int
    widest: int
    """No input is longer."""
    longest: int
    """No sequence is longer, in any batch of these texts."""

    def to(self, device: torch.device) -> "PackedBatch":
        ids, types, seq, offsets = (tensor.to(device, non_blocking=True) for tensor in self[:4])
        return PackedBatch(ids, types, seq, offsets, *self[4:])

    def positions(self) -> Tensor:
        """Return each position counted within its sequence."""
        return torch.arange(len(self.ids), device=self.ids.device) - self.offsets[self.seq]

    def firsts(self) -> Tensor:
        """Return where each input begins; filled up, so that there are several: a graph knows one from many."""
        count = max(self.num_inputs, len(self.ids) // SHORT)
        return functional.pad(self.offsets[: self.num_inputs], (0, count - self.num_inputs))


def pad(pairs: Pairs, pad_id: int) -> PaddedBatch:
    """Return pairs as rectangles, all rows at once."""
    lengths = pairs.lengths
    shape = (len(lengths), int(lengths.max()))
    present = np.arange(shape[1]) < lengths[:, None]
    ids = np.full(shape, pad_id, np.int64)
    token_types = np.zeros(shape, np.int64)
    ids[present], token_types[present] = pairs.ids, pairs.token_types()
    return PaddedBatch(torch.from_numpy(ids), torch.from_numpy(present.astype(np.int64)), torch.from_numpy(token_types))


def pack(padded: PaddedBatch, pad_id: int, longest: int) -> PackedBatch:
    """Return a rectangle's inputs end to end, as they are learnt."""
    present = padded.attention_mask.bool()
    lengths = present.sum(1).numpy()
    row = Row.of(lengths, longest)
    bounds = _bounds(lengths, row.size, longest, row.num_bounds)
    filling = (0, row.size - int(lengths.sum()))
    return PackedBatch(
        functional.pad(padded.ids[present], filling, value=pad_id),
        functional.pad(padded.token_types[present], filling),
        torch.from_numpy(np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))),
        torch.from_numpy(bounds),
        len(lengths),
        row.widest,
        longest,
    )


class Row(NamedTuple):
    """The shape of a packed row to learn from: one of a few for all batches, so that steps can be recorded."""

    size: int
    num_bounds: int
    widest: int

    @classmethod
    def of(cls, lengths: Rows, longest: int) -> "Row":
        """Return that of inputs; a thirty-second of it is filling at most, of a short one less than 256 positions."""
        total = int(lengths.sum())
        step = max(256, (1 << total.bit_length()) >> 6)
        widest = min(longest, -(-int(lengths.max(initial=1)) // 64) * 64)
        return cls(-(-total // step) * step, len(lengths) + -(-step // longest) + 1, widest)


def _bounds(lengths: Rows, size: int, longest: int, at_least: int = 0) -> Rows:
    """Return where inputs begin in a row, then what fills it up, and its end, so often that there are enough."""
    # Sequences as any other's length: one long one would cost its length squared.
    filling = np.arange(lengths.sum(), size, longest)
    ends = [size] * max(1, at_least - len(lengths) - len(filling))
    return np.concatenate([[0], np.cumsum(lengths)[:-1], filling, ends])


@dataclass(frozen=True)
class PairTexts:
    """The texts pairs are made of. They go to a device once; only row numbers follow them."""

    starts: Ragged
    passages: Ragged
    length: int
    pad_id: int
    sep_id: int
    _there: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def since(self, row: int, others: "PairTexts") -> "PairTexts":
        """Return the texts from a row on, and then others."""
        starts, passages = self.starts.since(row) + others.starts, self.passages.since(row) + others.passages
        return PairTexts(starts, passages, self.length, self.pad_id, self.sep_id)

    def lengths(self, query_rows: Rows, passage_rows: Rows) -> Rows:
        """Return how long each pair's input is."""
        prefix, body = pair_lengths(self.starts, self.passages, query_rows, passage_rows, self.length)
        return prefix + body + 1

    def padded(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> PaddedBatch:
        """Return pairs as a rectangle."""
        facts, total = self._facts(query_rows, passage_rows, device)
        within = torch.arange(int(total.max()), device=device)
        present = within < facts[3, :, None]
        ids, types = self._read(facts[:, :, None], within)
        return PaddedBatch(ids.masked_fill(~present, self.pad_id), present.long(), types.masked_fill(~present, 0))

    def packed(
        self, query_rows: Rows, passage_rows: Rows, size: int, device: torch.device, num_bounds: int = 0
    ) -> PackedBatch:
        """Return pairs end to end, filled up to `size` positions, with so many bounds at least."""
        facts, total = self._facts(query_rows, passage_rows, device)
        ends = torch.from_numpy(_bounds(total, size, self.length, num_bounds)).to(device, non_blocking=True)
        seq = torch.searchsorted(ends, torch.arange(size, device=device), right=True) - 1
        within = torch.arange(size, device=device) - ends[seq]
        of_pair = seq.clamp(max=len(total) - 1)
        ids, types = self._read(facts[:, of_pair], within)
        is_filling = seq >= len(total)
        return PackedBatch(
            ids.masked_fill(is_filling, self.pad_id),
            types.masked_fill(is_filling, 0),
            seq,
            ends,
            len(total),
            int(total.max(initial=1)),
            self.length,
        )

    def learnt(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> PackedBatch:
        """Return pairs end to end in a row of one of a few shapes."""
        row = Row.of(self.lengths(query_rows, passage_rows), self.length)
        batch = self.packed(query_rows, passage_rows, row.size, device, row.num_bounds)
        return batch._replace(widest=row.widest)

    def _facts(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> tuple[Tensor, Rows]:
        """Return where each pair's texts begin, how many ids its query has and how many it has; the last here too."""
        prefix, body = pair_lengths(self.starts, self.passages, query_rows, passage_rows, self.length)
        total = prefix + body + 1
        facts = np.stack([self.starts.offsets[query_rows], self.passages.offsets[passage_rows], prefix, total])
        return torch.from_numpy(facts).to(device, non_blocking=True), total

    def _read(self, facts: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids and token types at some places within pairs."""
        query, passage, prefix, total = facts
        starts, passages = self.on(within.device)
        is_start = within < prefix
        # What lies behind a pair's end is read from somewhere and replaced.
        from_start = starts[(query + within).clamp(max=len(starts) - 1)]
        from_passage = passages[(passage + within - prefix).clamp(0, len(passages) - 1)]
        ids = torch.where(is_start, from_start, from_passage).masked_fill(within == total - 1, self.sep_id)
        return ids.long(), (~is_start).long()

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return all ids as tensors on a device; the first time they are brought there."""
        if device not in self._there:
            with warnings.catch_warnings():
                # Arrow's memory is read only, and nobody writes to these tensors.
                warnings.simplefilter("ignore", UserWarning)
                # Texts without a single piece still have to be read from somewhere.
                starts, passages = (
                    torch.from_numpy(texts.values if len(texts.values) else np.zeros(1, np.int32))
                    for texts in (self.starts, self.passages)
                )
            if device.type == "cuda" and len(starts) + len(passages) < FEW:
                # Only from there does a copy not wait for what the device has still to do.
                starts, passages = starts.pin_memory(), passages.pin_memory()
            self._there[device] = starts.to(device, non_blocking=True), passages.to(device, non_blocking=True)
        return self._there[device]
