"""Attention over packed batches: one row of many sequences, each of which sees only itself.

What scores goes through a kernel of our own (`row_kernel`): it works out of each two pieces whether one may attend to
the other, and no mask is ever written down. When layers learn, those without STRM go through FlashAttention where there
is one, which knows no masks. For the others the row is spread out to a rectangle for SDPA, whose masks are as large as
for padded batches; a bias has one for each head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.library import custom_op
from torch.nn import functional
from torch.utils._triton import has_triton

from rayrank.models.attention.layer_masks import LayerMasks, Place
from rayrank.models.attention.strm import PackedCodes
from rayrank.models.batches import PackedBatch

BLOCK = 64
"""Queries that are computed together; packed rows that are scored are a multiple of it."""

KEYS = 32
"""Keys that these read at a time. Where they are more, more are read in vain: sequences have a hundred pieces or so."""

RUN = 1 / 4
"""The share of an encoder's layers that are compiled as one graph when it learns: a CPU takes a millisecond to call a
graph, which twenty-four small ones would wait for, and all of BERT-large as one was not ready after 100 s."""

OLDEST_WITH_BFLOAT16 = (8, 0)
"""Of GPUs; those have FlashAttention as well."""


@dataclass(frozen=True)
class Bounds:
    """Where the sequences of a row begin and the row ends, as FlashAttention asks for it."""

    offsets: Tensor
    longest: int
    """No sequence is longer."""
    has_flash: bool
    """Whether the device knows FlashAttention."""

    def suit(self, query: Tensor) -> bool:
        """Return whether FlashAttention takes such queries."""
        return self.has_flash and query.dtype in (torch.bfloat16, torch.float16)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return what each position reads of its whole sequence."""
        # What torch.nn.attention.varlen_attn calls; that one has no dropout.
        rows = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        found = torch.ops.aten._flash_attention_forward(
            *rows, self.offsets, self.offsets, self.longest, self.longest, dropout, False, False
        )
        attended: Tensor = found[0]
        return attended.transpose(0, 1)[None]


def bounds_of(offsets: Tensor, longest: int) -> Bounds:
    """Return the bounds of a row."""
    has_flash = offsets.is_cuda and torch.cuda.get_device_capability(offsets.device) >= OLDEST_WITH_BFLOAT16
    return Bounds(offsets.to(torch.int32), longest, has_flash)


@dataclass(frozen=True)
class RowMasks:
    """What each layer of one packed batch sees while it scores."""

    codes: PackedCodes
    spans: Tensor
    """(blocks, 2): where the sequences of each block of queries begin and end; two blocks at least, as a graph that is
    compiled for any number of them is not for one."""
    bias: Tensor | None = None
    """(layers, heads), added to a logit where STRM would forbid it."""

    def attend(self, place: Place, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return what each position reads in one layer."""
        bias = place.bias(self.bias) if place.has_strm and self.bias is not None else None
        rows = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        found: Tensor = attend_in_rows(*rows, *self.codes, self.spans, bias, place.has_strm)
        return found.transpose(0, 1)[None]


@custom_op("rayrank::attend_in_rows", mutates_args=())
def attend_in_rows(
    query: Tensor, key: Tensor, value: Tensor, seq: Tensor, word: Tensor, open_to: Tensor, spans: Tensor,
    bias: Tensor | None, masked: bool,
) -> Tensor:  # fmt: skip
    """Return (positions, heads, size) of what each position reads of its sequence: one step of a compiled graph."""
    if not query.is_cuda:
        return _attend_by_mask(query, key, value, seq, word, open_to, bias, masked)
    # Only machines with a GPU need to have Triton.
    from rayrank.models.attention.kernel import attend

    with torch.cuda.device(query.device):
        return attend(query, key, value, seq, word, open_to, spans, bias, masked, BLOCK, KEYS)


def _attend_by_mask(
    query: Tensor, key: Tensor, value: Tensor, seq: Tensor, word: Tensor, open_to: Tensor,
    bias: Tensor | None, masked: bool,
) -> Tensor:  # fmt: skip
    """Return the same by a mask that is written down: of short rows, where there is no GPU."""
    mask = seq[:, None] == seq
    seen = (word[:, None] == word) | (seq[:, None] == open_to)
    if bias is not None:
        here = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        mask = torch.where(mask & ~seen, bias.to(query.dtype)[:, None, None], here)
    elif masked:
        mask = seen
    query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    return functional.scaled_dot_product_attention(query, key, value, mask).transpose(0, 1).contiguous()


@attend_in_rows.register_fake
def _(query: Tensor, *others: Any) -> Tensor:
    return query.new_empty(query.shape)


def row_masks(codes: PackedCodes, batch: PackedBatch, bias: Tensor | None = None) -> RowMasks:
    """Return the masks of one batch; sequences lie in order, so those of a block are one run of positions."""
    starts = batch.offsets[codes.seq[::BLOCK].long()]
    ends = batch.offsets[codes.seq[BLOCK - 1 :: BLOCK].long() + 1]
    # Read are whole steps of keys; rows end with one.
    return RowMasks(codes, torch.stack([starts // KEYS * KEYS, ends], 1), bias)


@dataclass(frozen=True)
class Rectangle:
    """Where the positions of a packed row lie in a rectangle of its inputs, and the other way round."""

    positions: Tensor
    """The position that each place of the rectangle shows, one row after another; padding shows any."""
    places: Tensor
    """The place of each position; what fills the row up has that of any."""
    present: Tensor
    """(inputs, length), False for padding."""
    is_input: Tensor
    """Of each position: False for what fills the row up."""

    def spread(self, states: Tensor) -> Tensor:
        """Return (inputs, heads, length, size) states of (1, heads, positions, size) ones."""
        rows = _taken(states[0].transpose(0, 1), self.positions, self.places, self.is_input)
        return rows.view(*self.present.shape, *rows.shape[1:]).transpose(1, 2)

    def packed(self, states: Tensor) -> Tensor:
        """Return them end to end again."""
        flat = states.transpose(1, 2).flatten(0, 1)
        return _taken(flat, self.places, self.positions, self.present.flatten()).transpose(0, 1)[None]


class _Taken(torch.autograd.Function):
    """Rows in another order. Each that counts is taken once, so that its gradient is taken too, and never added up."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, taken: Tensor, back: Tensor, counts: Tensor) -> Tensor:
        ctx.save_for_backward(back, counts)
        return rows.index_select(0, taken)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        back, counts = ctx.saved_tensors
        return gradient.index_select(0, back).masked_fill(~counts[:, None, None], 0), None, None, None


def _taken(rows: Tensor, taken: Tensor, back: Tensor, counts: Tensor) -> Tensor:
    return _Taken.apply(rows, taken, back, counts)  # type: ignore[no-any-return, no-untyped-call]


def rectangle(batch: PackedBatch) -> Rectangle:
    """Return the rectangle of a batch's inputs; its width is a multiple of eight, which kernels ask for."""
    width = -(-batch.max_input_length // 8) * 8
    count, size = batch.num_inputs, len(batch.ids)
    starts, ends = batch.offsets[:count], batch.offsets[1 : count + 1]
    within = torch.arange(width, device=batch.ids.device)
    positions = (starts[:, None] + within).clamp(max=size - 1).flatten()
    is_input = batch.seq < count
    places = (batch.seq * width + batch.positions()).masked_fill(~is_input, 0)
    return Rectangle(positions, places, within < (ends - starts)[:, None], is_input)


@dataclass(frozen=True)
class SpreadMasks:
    """What each layer of one packed batch sees while it learns."""

    rectangle: Rectangle
    masks: LayerMasks
    bounds: Bounds

    def attend(self, place: Place, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return what each position reads in one layer."""
        if not place.has_strm and self.bounds.suit(query):
            return self.bounds.attend(query, key, value, dropout)
        query, key, value = (self.rectangle.spread(tensor) for tensor in (query, key, value))
        mask = self.masks.of(place, query.dtype)
        found = functional.scaled_dot_product_attention(query, key, value, mask, dropout)
        return self.rectangle.packed(found)


class _Run(nn.Module):
    """Layers one after another, as one to compile."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, states: Tensor, *given: Any, **options: Any) -> Tensor:
        """Return what the last layer makes of the states."""
        for layer in self.layers:
            states = layer._call_impl(states, *given, **options)  # type: ignore[no-untyped-call]
        return states


def compile_layers(base: nn.Module, run: float = 0, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile an encoder's layers for rows of all lengths, one by one or in runs of a share of them."""
    # Several workers' graphs would be cut where gradients are exchanged, in the midst of a layer.
    torch._dynamo.config.optimize_ddp = False
    # The last layer has a hook that the others have not: it must not run their graph.
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    layers = layers_of(base)
    if not layers:
        base.compile(dynamic=True, backend=backend)
        return
    size = max(1, int(run * len(layers)))
    for start in range(0, len(layers), size):
        first, *others = layers[start : start + size]
        whole = _Run([first, *others])
        whole.compile(dynamic=True, backend=backend)
        # As `first.compile` would do it: what the model is made of, its weights' names too, stays as it is.
        first._compiled_call_impl = whole.__call__
        for layer in others:
            layer._compiled_call_impl = _as_it_is


def _as_it_is(states: Tensor, *given: Any, **options: Any) -> Tensor:
    """What a layer does that the first of its run has done already."""
    return states


def can_pack() -> bool:
    """Return whether the kernel of packed rows can be compiled for the GPU there is."""
    if not torch.cuda.is_available():
        return True
    return has_triton() and torch.cuda.get_device_capability() >= OLDEST_WITH_BFLOAT16


def layers_of(base: nn.Module) -> list[nn.Module]:
    """Return the layers of an encoder built as BERT is, none of another."""
    return list(getattr(getattr(base, "encoder", None), "layer", None) or [])
