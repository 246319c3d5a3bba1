"""Attention for training on packed batches, where each sequence of a row attends to itself only.

Layers without STRM use FlashAttention where the GPU has it; FlashAttention supports no masks. For the other layers
queries, keys and values are padded to a rectangle for SDPA, and its output is packed again. The masks are then as large
as those of padded batches, and STRM's learned bias needs one mask per head.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from rayrank.models.attention.packed_scoring import AMPERE
from rayrank.models.attention.padded import LayerIndex, PaddedMasks
from rayrank.models.batches import PackedBatch


@dataclass(frozen=True)
class FlashAttention:
    """FlashAttention over the sequences of a packed row."""

    offsets: Tensor
    """int32: where each sequence starts, and the row's length."""
    longest: int
    """An upper bound of the sequences' lengths."""
    is_available: bool
    """Whether the batch is on a GPU that has FlashAttention."""

    @classmethod
    def over(cls, batch: PackedBatch) -> "FlashAttention":
        """Return FlashAttention over the sequences of a batch."""
        offsets = batch.offsets
        is_available = offsets.is_cuda and torch.cuda.get_device_capability(offsets.device) >= AMPERE
        return cls(offsets.to(torch.int32), batch.max_sequence_length, is_available)

    def supports(self, query: Tensor) -> bool:
        """Return whether queries of this dtype can be computed."""
        return self.is_available and query.dtype in (torch.bfloat16, torch.float16)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, dropout: float, window: int | None = None
    ) -> Tensor:  # fmt: skip
        """Return the attention output without STRM, (1, heads, positions, head size) as the arguments are."""
        # The op behind torch.nn.attention.varlen_attn, which has no dropout.
        rows = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        outputs = torch.ops.aten._flash_attention_forward(
            *rows, self.offsets, self.offsets, self.longest, self.longest, dropout, False, False,
            window_size_left=window, window_size_right=window,
        )  # fmt: skip
        attended: Tensor = outputs[0]
        return attended.transpose(0, 1)[None]


@dataclass(frozen=True)
class PaddedLayout:
    """The inputs of a packed row laid out as a rectangle: which packed position each slot holds, and vice versa."""

    positions: Tensor
    """For each slot of the rectangle, row after row, its packed position; for padding any position."""
    slots: Tensor
    """For each packed position its slot; for the row's padding any slot."""
    present: Tensor
    """(inputs, length), False for padding."""
    is_input: Tensor
    """For each packed position, False for the row's padding."""

    def pad(self, states: Tensor) -> Tensor:
        """Return (1, heads, positions, size) states as an (inputs, heads, length, size) rectangle."""
        rows = _gather(states[0].transpose(0, 1), self.positions, self.slots, self.is_input)
        return rows.view(*self.present.shape, *rows.shape[1:]).transpose(1, 2)

    def pack(self, states: Tensor) -> Tensor:
        """Return a rectangle's states as (1, heads, positions, size), the reverse of `pad`."""
        flat = states.transpose(1, 2).flatten(0, 1)
        return _gather(flat, self.slots, self.positions, self.present.flatten()).transpose(0, 1)[None]


class _Gather(torch.autograd.Function):
    """index_select with a backward that gathers too: every row that is not padding is selected exactly once, so its
    gradient needs no scatter-add."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, inverse: Tensor, present: Tensor) -> Tensor:
        ctx.save_for_backward(inverse, present)
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        inverse, present = ctx.saved_tensors
        return gradient.index_select(0, inverse).masked_fill(~present[:, None, None], 0), None, None, None


def _gather(rows: Tensor, index: Tensor, inverse: Tensor, present: Tensor) -> Tensor:
    return _Gather.apply(rows, index, inverse, present)  # type: ignore[no-any-return, no-untyped-call]


def padded_layout(batch: PackedBatch) -> PaddedLayout:
    """Return the layout of a batch's inputs as a rectangle, whose width is a multiple of 8 as SDPA's kernels need."""
    width = -(-batch.max_input_length // 8) * 8
    count, size = batch.num_inputs, len(batch.ids)
    starts, ends = batch.offsets[:count], batch.offsets[1 : count + 1]
    within = torch.arange(width, device=batch.ids.device)
    positions = (starts[:, None] + within).clamp(max=size - 1).flatten()
    is_input = batch.seq < count
    slots = (batch.seq * width + batch.positions()).masked_fill(~is_input, 0)
    return PaddedLayout(positions, slots, within < (ends - starts)[:, None], is_input)


@dataclass(frozen=True)
class PackedTrainingMasks:
    """How each layer attends while it is trained on a packed batch."""

    layout: PaddedLayout
    masks: PaddedMasks
    """The masks of the layout's rectangle."""
    flash: FlashAttention

    def attend(self, layer: LayerIndex, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return the attention output of one layer, (1, heads, positions, head size) as its arguments are."""
        if not layer.has_strm and self.flash.supports(query):
            return self.flash.attend(query, key, value, dropout, layer.window)
        query, key, value = (self.layout.pad(tensor) for tensor in (query, key, value))
        mask = self.masks.for_layer(layer, query.dtype)
        output = functional.scaled_dot_product_attention(query, key, value, mask, dropout)
        return self.layout.pack(output)
