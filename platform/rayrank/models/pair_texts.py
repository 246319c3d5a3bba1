"""The texts of queries and passages, and batches of pairs that are put together on the model's device."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.marked_pairs import CPU, TOKENS_AT_ONCE, MarkedPairs
from rayrank.models.packed_rows import RowShape, row_offsets
from rayrank.text.ragged import Ragged, Rows, Windows, join
from rayrank.text.template import Template

MAX_PINNED_IDS = 2**22
"""Texts with fewer ids than this (a few batches, not a corpus) are copied to a GPU through pinned memory."""

MAX_IDS_ON_GPU = 2**28
"""Passages with more ids than this stay where they are, and a GPU gets those of each batch. Kept on the GPU, this many
take 1 GiB. Those of MS MARCO, computed from 8.8 million passages of 80 ids, would take 2.6 GiB of a small card in every
process that uses it (docs/SCALE.md)."""


@dataclass(frozen=True)
class PairTexts:
    """The prefixes and passages that pairs are made of.

    Their ids are copied to a device once. A batch then sends the rows of its pairs there, and its inputs are gathered
    on the device, with the same ids and token types as `Template.pairs` returns, and with the template's markers. Of
    passages with more than MAX_IDS_ON_GPU ids, only those of a batch are copied there, with the same result.
    """

    prefixes: Windows
    """`[CLS] type [SEP] query [SEP]` of every query."""
    passages: Windows
    template: Template
    _copies: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def length(self) -> int:
        """The maximum length of an input."""
        return self.template.length

    def __add__(self, other: "PairTexts") -> "PairTexts":
        """Return these texts and then others."""
        return PairTexts(self.prefixes + other.prefixes, self.passages + other.passages, self.template)

    def from_row(self, row: int) -> "PairTexts":
        """Return the prefixes and the passages from one row on."""
        rows = slice(row, None)
        return PairTexts(self.prefixes.take(rows), self.passages.take(rows), self.template)

    def for_batch(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> tuple["PairTexts", Rows, Rows]:
        """Return texts whose ids may all be copied to the device, and the rows of the pairs in these texts."""
        if not self._streams(device):
            return self, query_rows, passage_rows
        rows = np.arange(len(query_rows))
        prefixes, passages = join(self.prefixes.take(query_rows)), join(self.passages.take(passage_rows))
        return PairTexts(prefixes, passages, self.template), rows, rows

    def _streams(self, device: torch.device) -> bool:
        """Return whether the passages are too many to be copied to the device."""
        if len(self.passages.values) <= MAX_IDS_ON_GPU:
            return False
        if self.template.markers:
            # Markers have arrays as long as the ids, on any device. They also read the word that the end of a window
            # cuts, and of windows no part is copied because that word would be lost.
            return isinstance(self.passages, Ragged)
        return device.type == "cuda"

    @cached_property
    def marked(self) -> MarkedPairs | None:
        """Marks pairs, if the template has markers."""
        markers = self.template.markers
        return MarkedPairs(self.prefixes, self.passages, self.template, markers) if markers else None

    def lengths(self, query_rows: Rows, passage_rows: Rows, device: torch.device = CPU) -> Rows:
        """Return the length of each pair's input; a device that holds the texts is faster if pairs are marked."""
        if self.template.markers:
            return np.minimum(self._marked_lengths(query_rows, passage_rows, device), self.length)
        return self.template.lengths(self.prefixes.lengths(query_rows), self.passages.lengths(passage_rows))

    def is_truncated(self, query_rows: Rows, passage_rows: Rows) -> NDArray[np.bool_]:
        """Return whether a pair's input leaves out the end of its passage."""
        cut = self.template.is_truncated(self.prefixes.lengths(query_rows), self.passages.lengths(passage_rows))
        if self.template.markers:
            cut |= self._marked_lengths(query_rows, passage_rows, CPU) > self.length
        return cut

    def _marked_lengths(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> Rows:
        """Return the length of each marked pair before its end is cut to make room for markers."""
        found = [np.empty(0, np.int64)]
        for part in self._parts(query_rows, passage_rows):
            texts, queries, passages = self.for_batch(query_rows[part], passage_rows[part], device)
            assert texts.marked
            found.append(texts.marked.full_lengths(queries, passages, device))
        return np.concatenate(found)

    def _parts(self, query_rows: Rows, passage_rows: Rows) -> list[Rows]:
        """Return the indices of the pairs that are marked together."""
        ends = np.cumsum(self.prefixes.lengths(query_rows) + self.passages.lengths(passage_rows))
        return np.split(np.arange(len(ends)), np.flatnonzero(np.diff(ends // TOKENS_AT_ONCE)) + 1)

    def inputs(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> "PairInputs":
        """Return the inputs of pairs, to make batches of them on a device."""
        if not self.template.markers:
            return PairInputs(self, query_rows, passage_rows, device)
        parts = []
        for part in self._parts(query_rows, passage_rows):
            texts, queries, passages = self.for_batch(query_rows[part], passage_rows[part], device)
            assert texts.marked
            parts.append(texts.marked.inputs(queries, passages, device))
        return MarkedInputs(self.template, parts, device)

    def padded(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> PaddedBatch:
        """Return pairs padded to the longest."""
        return self.inputs(query_rows, passage_rows, device).padded(np.arange(len(query_rows)))

    def packed(self, query_rows: Rows, passage_rows: Rows, size: int, device: torch.device) -> PackedBatch:
        """Return pairs packed into a row of `size` positions."""
        return self.inputs(query_rows, passage_rows, device).packed(np.arange(len(query_rows)), size)

    def packed_for_training(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> PackedBatch:
        """Return pairs packed into a row of one of a few shapes."""
        inputs = self.inputs(query_rows, passage_rows, device)
        row = RowShape.of(inputs.lengths, self.length)
        batch = inputs.packed(np.arange(len(query_rows)), row.size, row.num_offsets)
        return batch._replace(max_input_length=row.max_input_length)

    def ids_on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the ids of all prefixes and of all passages on a device; the first call copies them there."""
        if device not in self._copies:
            with warnings.catch_warnings():
                # Arrow's memory is read-only, and nothing writes to these tensors.
                warnings.simplefilter("ignore", UserWarning)
                # An empty tensor cannot be indexed, not even to discard the result.
                prefixes, passages = (
                    torch.from_numpy(texts.values if len(texts.values) else np.zeros(1, np.int32))
                    for texts in (self.prefixes, self.passages)
                )
            if device.type == "cuda" and len(prefixes) + len(passages) < MAX_PINNED_IDS:
                # A copy from pageable memory would wait for the work that the GPU has queued.
                prefixes, passages = prefixes.pin_memory(), passages.pin_memory()
            self._copies[device] = prefixes.to(device, non_blocking=True), passages.to(device, non_blocking=True)
        return self._copies[device]


class PairInputs:
    """The inputs of some pairs, of which batches are made on a device."""

    def __init__(self, texts: PairTexts, query_rows: Rows, passage_rows: Rows, device: torch.device) -> None:
        self._texts, self._rows, self._device = texts, (query_rows, passage_rows), device
        self._template, self.lengths = texts.template, texts.lengths(query_rows, passage_rows)

    def padded(self, chosen: Rows) -> PaddedBatch:
        """Return some of the inputs, padded to the longest of them."""
        lengths = self.lengths[chosen]
        within = torch.arange(int(lengths.max()), device=self._device)
        present = within < torch.from_numpy(lengths).to(self._device, non_blocking=True)[:, None]
        ids, types = self._gather(chosen)(torch.arange(len(chosen), device=self._device)[:, None], within)
        ids = ids.masked_fill(~present, self._template.pad_id)
        return PaddedBatch(ids, present.long(), types.masked_fill(~present, 0))

    def packed(self, chosen: Rows, size: int, min_offsets: int = 0) -> PackedBatch:
        """Return some of the inputs, packed into a row of `size` positions, with at least `min_offsets` offsets."""
        lengths, most = self.lengths[chosen], self._template.length
        offsets = torch.from_numpy(row_offsets(lengths, size, most, min_offsets)).to(self._device, non_blocking=True)
        positions = torch.arange(size, device=self._device)
        seq = torch.searchsorted(offsets, positions, right=True) - 1
        ids, types = self._gather(chosen)(seq.clamp(max=len(lengths) - 1), positions - offsets[seq])
        is_padding = seq >= len(lengths)
        ids = ids.masked_fill(is_padding, self._template.pad_id)
        types = types.masked_fill(is_padding, 0)
        return PackedBatch(ids, types, seq, offsets, len(lengths), int(lengths.max(initial=1)), most)

    def _gather(self, chosen: Rows) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Return a function from the indices of chosen inputs, and positions within them, to ids and token types.

        Values of positions after an input's end are arbitrary.
        """
        query_rows, passage_rows = self._rows
        texts, query_rows, passage_rows = self._texts.for_batch(
            query_rows[chosen], passage_rows[chosen], self._device
        )  # fmt: skip
        starts = texts.prefixes.starts[query_rows], texts.passages.starts[passage_rows]
        numbers = np.stack([*starts, texts.prefixes.lengths(query_rows), self.lengths[chosen]])
        extents = torch.from_numpy(numbers).to(self._device, non_blocking=True)
        prefixes, passages = texts.ids_on(self._device)

        def gather(pair: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
            prefix_start, passage_start, before, lengths = extents[:, pair]
            in_prefix = within < before
            # Every position reads both arrays. The index into the wrong one is clamped, and its value is not used.
            from_prefix = prefixes[(prefix_start + within).clamp(max=len(prefixes) - 1)]
            from_passage = passages[(passage_start + within - before).clamp(0, len(passages) - 1)]
            ids = torch.where(in_prefix, from_prefix, from_passage)
            return ids.masked_fill(within == lengths - 1, self._template.sep_id).long(), (~in_prefix).long()

        return gather


class MarkedInputs(PairInputs):
    """Inputs with markers, which lie on the device one after another: marking all at once is faster than by batch."""

    def __init__(self, template: Template, parts: list[tuple[Tensor, Tensor, Rows]], device: torch.device) -> None:
        """Take the ids of each part, whether they belong to the passage, and the lengths, see `MarkedPairs.inputs`."""
        self._template, self._device = template, device
        ids, is_passage, lengths = zip(*parts, strict=True)
        self._ids, self._is_passage, self.lengths = torch.cat(ids), torch.cat(is_passage), np.concatenate(lengths)
        self._starts = np.cumsum(self.lengths) - self.lengths

    def _gather(self, chosen: Rows) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]:
        starts = torch.from_numpy(self._starts[chosen]).to(self._device, non_blocking=True)

        def gather(pair: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
            place = (starts[pair] + within).clamp(max=len(self._ids) - 1)
            return self._ids[place].long(), self._is_passage[place].long()

        return gather
