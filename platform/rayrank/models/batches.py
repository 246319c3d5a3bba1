"""Batches of model inputs, padded to a rectangle or packed into one row, put together on the model's device."""

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from rayrank.models.marked_pairs import CPU, TOKENS_AT_ONCE, MarkedPairs
from rayrank.models.packed_rows import RowShape, row_offsets
from rayrank.text.ragged import Ragged, Rows, Windows, join
from rayrank.text.template import Sequences, Template

MIN_MEAN_LENGTH = 32
"""The smallest expected mean length of the inputs of a packed row; see `PackedBatch.first_positions`."""

MAX_PINNED_IDS = 2**22
"""Texts with fewer ids than this (a few batches, not a corpus) are copied to a GPU through pinned memory."""

MAX_IDS_ON_GPU = 2**28
"""Passages with more ids than this stay where they are, and a GPU gets those of each batch. Kept on the GPU, this many
take 1 GiB. Those of MS MARCO, computed from 8.8 million passages of 80 ids, would take 2.6 GiB of a small card in every
process that uses it (docs/SCALE.md)."""


class PaddedBatch(NamedTuple):
    """The inputs of one batch as (inputs, length) tensors, padded to the longest."""

    ids: Tensor
    attention_mask: Tensor
    token_types: Tensor

    def to(self, device: torch.device) -> "PaddedBatch":
        return PaddedBatch(*(tensor.to(device, non_blocking=True) for tensor in self))

    @property
    def num_inputs(self) -> int:
        # Not len(): a traced graph would keep the number as a constant.
        return self.ids.shape[0]

    def first_positions(self) -> Tensor:
        """Return the position of each input's first id, counted through the batch row by row."""
        rows, width = self.ids.shape
        return torch.arange(rows, device=self.ids.device) * width


class PackedBatch(NamedTuple):
    """The inputs of one batch as one row, end to end; the padding after them is split into sequences of its own."""

    ids: Tensor
    token_types: Tensor
    seq: Tensor
    """The number of each position's sequence."""
    offsets: Tensor
    """The start of each sequence, those of padding included, then the row's length, once or several times."""
    num_inputs: int
    max_input_length: int
    """An upper bound of the lengths of this batch's inputs."""
    max_sequence_length: int
    """An upper bound of the lengths of all sequences, padding included; the same in all batches of a template."""

    def to(self, device: torch.device) -> "PackedBatch":
        ids, types, seq, offsets = (tensor.to(device, non_blocking=True) for tensor in self[:4])
        return PackedBatch(ids, types, seq, offsets, *self[4:])

    def positions(self) -> Tensor:
        """Return each position counted within its sequence."""
        return torch.arange(len(self.ids), device=self.ids.device) - self.offsets[self.seq]

    def first_positions(self) -> Tensor:
        """Return the position of each input's first id, padded with zeros so that there are always several.

        torch.compile specialises on a dimension of size 1, so a batch of one input would be compiled again.
        """
        count = max(self.num_inputs, len(self.ids) // MIN_MEAN_LENGTH)
        return functional.pad(self.offsets[: self.num_inputs], (0, count - self.num_inputs))


def pad(sequences: Sequences, pad_id: int) -> PaddedBatch:
    """Return inputs as a rectangle, all rows at once."""
    lengths = sequences.ids.lengths()
    shape = (len(lengths), int(lengths.max()))
    present = np.arange(shape[1]) < lengths[:, None]
    ids = np.full(shape, pad_id, np.int64)
    token_types = np.zeros(shape, np.int64)
    ids[present], token_types[present] = sequences.ids.values, sequences.token_types()
    return PaddedBatch(torch.from_numpy(ids), torch.from_numpy(present.astype(np.int64)), torch.from_numpy(token_types))


def pack(padded: PaddedBatch, template: Template) -> PackedBatch:
    """Return the inputs of a padded batch as a packed row with one of the few shapes that training uses."""
    present = padded.attention_mask.bool()
    lengths = present.sum(1).numpy()
    row = RowShape.of(lengths, template.length)
    offsets = row_offsets(lengths, row.size, template.length, row.num_offsets)
    padding = (0, row.size - int(lengths.sum()))
    return PackedBatch(
        functional.pad(padded.ids[present], padding, value=template.pad_id),
        functional.pad(padded.token_types[present], padding),
        torch.from_numpy(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))),
        torch.from_numpy(offsets),
        len(lengths),
        row.max_input_length,
        template.length,
    )


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
        sizes = self.prefixes.lengths(query_rows) + self.passages.lengths(passage_rows)
        found = [np.empty(0, np.int64)]
        for part in np.split(np.arange(len(sizes)), np.flatnonzero(np.diff(np.cumsum(sizes) // TOKENS_AT_ONCE)) + 1):
            texts, queries, passages = self.for_batch(query_rows[part], passage_rows[part], device)
            assert texts.marked
            found.append(texts.marked.full_lengths(queries, passages, device))
        return np.concatenate(found)

    def padded(
        self, query_rows: Rows, passage_rows: Rows, device: torch.device, lengths: Rows | None = None
    ) -> PaddedBatch:
        """Return pairs padded to the longest; `lengths` are those of their inputs, if the caller knows them."""
        texts, query_rows, passage_rows = self.for_batch(query_rows, passage_rows, device)
        return texts._padded(query_rows, passage_rows, device, lengths)

    def _padded(self, query_rows: Rows, passage_rows: Rows, device: torch.device, lengths: Rows | None) -> PaddedBatch:
        if self.marked:
            found = self.lengths(query_rows, passage_rows, device) if lengths is None else lengths
            return self._marked_padded(self.marked, query_rows, passage_rows, device, found)
        extents, lengths = self._extents(query_rows, passage_rows, device)
        within = torch.arange(int(lengths.max()), device=device)
        present = within < extents[3, :, None]
        ids, types = self._gather(extents[:, :, None], within)
        pad_id = self.template.pad_id
        return PaddedBatch(ids.masked_fill(~present, pad_id), present.long(), types.masked_fill(~present, 0))

    def _marked_padded(
        self, marked: MarkedPairs, query_rows: Rows, passage_rows: Rows, device: torch.device, found: Rows
    ) -> PaddedBatch:
        lengths, shape = torch.from_numpy(found).to(device), (len(found), int(found.max()))
        starts = torch.arange(shape[0], device=device) * shape[1]
        ids, types = marked.write(query_rows, passage_rows, starts, lengths, shape[0] * shape[1])
        present = torch.arange(shape[1], device=device) < lengths[:, None]
        return PaddedBatch(ids.view(shape), present.long(), types.view(shape))

    def packed(
        self, query_rows: Rows, passage_rows: Rows, size: int, device: torch.device, min_offsets: int = 0,
        lengths: Rows | None = None,
    ) -> PackedBatch:  # fmt: skip
        """Return pairs packed into a row of `size` positions, with at least `min_offsets` offsets.

        `lengths` are those of the pairs' inputs, if the caller knows them.
        """
        if lengths is None:
            lengths = self.lengths(query_rows, passage_rows, device)
        texts, query_rows, passage_rows = self.for_batch(query_rows, passage_rows, device)
        return texts._packed(query_rows, passage_rows, size, device, min_offsets, lengths)

    def _packed(
        self, query_rows: Rows, passage_rows: Rows, size: int, device: torch.device, min_offsets: int, lengths: Rows
    ) -> PackedBatch:
        offsets = torch.from_numpy(row_offsets(lengths, size, self.length, min_offsets)).to(device, non_blocking=True)
        seq = torch.searchsorted(offsets, torch.arange(size, device=device), right=True) - 1
        if self.marked:
            starts, on_device = offsets[: len(lengths)], torch.from_numpy(lengths).to(device, non_blocking=True)
            ids, types = self.marked.write(query_rows, passage_rows, starts, on_device, size)
        else:
            extents, _ = self._extents(query_rows, passage_rows, device)
            within = torch.arange(size, device=device) - offsets[seq]
            ids, types = self._gather(extents[:, seq.clamp(max=len(lengths) - 1)], within)
        is_padding = seq >= len(lengths)
        return PackedBatch(
            ids.masked_fill(is_padding, self.template.pad_id),
            types.masked_fill(is_padding, 0),
            seq,
            offsets,
            len(lengths),
            int(lengths.max(initial=1)),
            self.length,
        )

    def packed_for_training(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> PackedBatch:
        """Return pairs packed into a row of one of a few shapes."""
        lengths = self.lengths(query_rows, passage_rows, device)
        row = RowShape.of(lengths, self.length)
        batch = self.packed(query_rows, passage_rows, row.size, device, row.num_offsets, lengths)
        return batch._replace(max_input_length=row.max_input_length)

    def _extents(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> tuple[Tensor, Rows]:
        """Return a (4, pairs) tensor on the device, and the input lengths on the CPU.

        The tensor holds the start of each pair's prefix, the start of its passage, and the lengths of its prefix and
        of its input.
        """
        before = self.prefixes.lengths(query_rows)
        lengths = self.template.lengths(before, self.passages.lengths(passage_rows))
        extents = np.stack([self.prefixes.starts[query_rows], self.passages.starts[passage_rows], before, lengths])
        return torch.from_numpy(extents).to(device, non_blocking=True), lengths

    def _gather(self, extents: Tensor, within: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ids and token types at positions within pairs; values after a pair's end are arbitrary."""
        prefix_start, passage_start, before, lengths = extents
        prefixes, passages = self.ids_on(within.device)
        in_prefix = within < before
        # Every position reads both arrays. The index into the wrong one is clamped, and its value is not used.
        from_prefix = prefixes[(prefix_start + within).clamp(max=len(prefixes) - 1)]
        from_passage = passages[(passage_start + within - before).clamp(0, len(passages) - 1)]
        ids = torch.where(in_prefix, from_prefix, from_passage)
        return ids.masked_fill(within == lengths - 1, self.template.sep_id).long(), (~in_prefix).long()

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
