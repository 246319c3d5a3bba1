"""Attention over packed batches: one row of many sequences, each of which sees only itself.

Layers without STRM go through FlashAttention where there is one, which knows no masks. Those with it, and all that are
compiled to score, go through FlexAttention: it asks of each two pieces whether one may attend to the other, and no mask
is ever written down. When they learn, the row is spread out to a rectangle for SDPA, which has dropout where
FlexAttention has none. Its masks are then as large as for padded batches; a bias has one for each head.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.utils._triton import has_triton

from rayrank.modeling.batches import SHORT, PackedBatch
from rayrank.modeling.layer_masks import LayerMasks, Place
from rayrank.modeling.strm import PackedCodes

BLOCK = 64
"""Positions a block of the mask; blocks that no sequence spans cost nothing, so short ones cost less."""

OPTIONS: Any = {"fwd_BLOCK_M": BLOCK, "fwd_BLOCK_N": BLOCK}

RUN = 1 / 4
"""The share of an encoder's layers that are compiled as one graph when it learns: a CPU takes a millisecond to call a
graph, which twenty-four small ones would wait for, and all of BERT-large as one was not ready after 100 s."""

OLDEST_WITH_FLASH = (8, 0)


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

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
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
    has_flash = offsets.is_cuda and torch.cuda.get_device_capability(offsets.device) >= OLDEST_WITH_FLASH
    return Bounds(offsets.to(torch.int32), longest, has_flash)


@dataclass(frozen=True)
class RowMasks:
    """What each layer of one packed batch sees while it scores."""

    codes: PackedCodes
    num_blocks: Tensor
    """For each block of queries how many blocks of keys its sequences span."""
    blocks: Tensor
    """Which those are."""
    bounds: Bounds
    bias: Tensor | None = None
    """(layers, heads), added to a logit where STRM would forbid it."""

    def attend(self, place: Place, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return what each position reads in one layer."""
        compiling = torch.compiler.is_compiling()
        # Within a layer that is compiled as a whole FlexAttention becomes a part of the graph, FlashAttention does not.
        if not place.has_strm and not compiling and self.bounds.suit(query):
            return self.bounds.attend(query, key, value)
        bias = place.bias(self.bias) if place.has_strm and self.bias is not None else None
        masked = place.has_strm and bias is None
        attend = _compiled() if query.is_cuda and not compiling else _flex
        return attend(query, key, value, masked, *self.codes, bias, self.num_blocks, self.blocks)


def row_masks(codes: PackedCodes, batch: PackedBatch, bias: Tensor | None = None) -> RowMasks:
    """Return the masks of one batch; sequences lie in order, so a block's sequences span one run of blocks."""
    offsets, size = batch.offsets, len(batch.ids)
    low = offsets[codes.seq[::BLOCK].long()] // BLOCK
    high = (offsets[codes.seq[BLOCK - 1 :: BLOCK].long() + 1] - 1) // BLOCK
    numbers = torch.arange(len(low), device=low.device)
    blocks = (low[:, None] + numbers).clamp(max=len(low) - 1)
    counts, blocks = (tensor.to(torch.int32)[None, None] for tensor in (high - low + 1, blocks))
    # Rows of one length have as many bounds, whatever they hold: a graph knows one number of them.
    spare = max(0, size // SHORT + size // batch.longest + 2 - len(offsets))
    bounds = bounds_of(functional.pad(offsets, (0, spare), value=size), batch.longest)
    return RowMasks(codes, counts, blocks, bounds, bias)


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
    width = -(-batch.widest // 8) * 8
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


def _flex(
    query: Tensor, key: Tensor, value: Tensor, masked: bool, seq: Tensor, word: Tensor, open_to: Tensor,
    bias: Tensor | None, num_blocks: Tensor, blocks: Tensor,
) -> Tensor:  # fmt: skip
    size = query.shape[2]

    def plain(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return seq[q] == seq[k]

    def strm(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (word[q] == word[k]) | (open_to[k] == seq[q])

    def biased(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        assert bias is not None
        return torch.where(strm(b, h, q, k), score, score + bias[h])

    mask = BlockMask(
        (size, size), num_blocks, blocks, None, None, num_blocks, blocks, None, None, (BLOCK, BLOCK),
        strm if masked else plain,
    )  # fmt: skip
    found: Tensor = flex_attention(
        query,
        key,
        value,
        score_mod=None if bias is None else biased,
        block_mask=mask,
        kernel_options=OPTIONS,
    )
    return found


@cache
def _compiled() -> Callable[..., Tensor]:
    # For rows of any length, so that it is compiled once in a process, whatever is scored there.
    return torch.compile(_flex, dynamic=True)


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


def compile_layers(
    base: nn.Module, dynamic: bool, run: float = 0, backend: str | Callable[..., Any] = "inductor"
) -> None:
    """Compile an encoder's layers one by one, or in runs of a share of them; dynamic, for rows of all lengths."""
    # Several workers' graphs would be cut where gradients are exchanged, in the midst of a layer.
    torch._dynamo.config.optimize_ddp = False
    # The last layer has a hook that the others have not: it must not run their graph.
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    layers = layers_of(base)
    if not layers:
        base.compile(dynamic=dynamic, backend=backend)
        return
    size = max(1, int(run * len(layers)))
    for start in range(0, len(layers), size):
        first, *others = layers[start : start + size]
        whole = _Run([first, *others])
        whole.compile(dynamic=dynamic, backend=backend)
        # As `first.compile` would do it: what the model is made of, its weights' names too, stays as it is.
        first._compiled_call_impl = whole.__call__
        for layer in others:
            layer._compiled_call_impl = _as_it_is


def _as_it_is(states: Tensor, *given: Any, **options: Any) -> Tensor:
    """What a layer does that the first of its run has done already."""
    return states


def can_compile() -> bool:
    """Return whether FlexAttention can be compiled for the GPU there is; without that it would write masks down."""
    return not torch.cuda.is_available() or has_triton()


def layers_of(base: nn.Module) -> list[nn.Module]:
    """Return the layers of an encoder built as BERT is, none of another."""
    return list(getattr(getattr(base, "encoder", None), "layer", None) or [])
