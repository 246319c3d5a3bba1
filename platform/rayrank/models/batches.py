"""Batches of model inputs, padded to a rectangle or packed into one row."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rayrank.models.packed_rows import RowShape, row_offsets
from rayrank.text.template import Sequences, Template

MIN_MEAN_LENGTH = 32
"""The smallest expected mean length of the inputs of a packed row; see `PackedBatch.first_positions`."""


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
