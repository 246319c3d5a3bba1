"""Attention over packed batches: one row of many sequences, each of which sees only itself.

Layers with STRM go through FlexAttention, plain ones through FlashAttention, which knows no masks and is the faster.
On a CPU, where neither can be trained, the same rules become one dense mask: the reference, not a fast path.
FlexAttention's dropout leaves logits out before the softmax, not weights after it, which it cannot: what is left adds
up to one then, where SDPA's adds up to one on average.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from rayrank.modeling.batches import SHORT
from rayrank.modeling.strm import PackedCodes

BLOCK, FINE_BLOCK = 128, 64
"""Positions a block of the mask; blocks that no sequence spans cost nothing, so short ones cost less. The kernel that
computes gradients has no blocks so short."""

SPREAD = 32
"""STRM's bias is read from this times this places, by position: backward adds to each number it read, and where all
pieces read one number they would wait for each other."""

LONG = 20.0
"""Seconds of work on a GPU after which layers are compiled: what is over sooner does not wait for that."""

OLDEST_WITH_FLASH = (8, 0)


class Dropping(NamedTuple):
    """Which weights of one layer dropout leaves out; not a mask, which would be size by size."""

    of_heads: Tensor
    of_queries: Tensor
    of_keys: Tensor
    limit: Tensor
    """One number; not a Python one, for which the kernel would be compiled anew."""


class Place(nn.Module):
    """Where in the encoder an attention is; a tensor has the number, as graphs are compiled anew for other ints."""

    number: Tensor

    def __init__(self, layer: int, has_strm: bool) -> None:
        super().__init__()
        self.has_strm = has_strm
        self.register_buffer("number", torch.tensor([layer]), persistent=False)


@dataclass(frozen=True)
class PackedMasks:
    """What each layer of one packed batch sees: some layers STRM's mask or its learned bias, the others everything."""

    codes: PackedCodes
    fine: bool
    """Whether blocks are the short ones."""
    num_blocks: Tensor
    """For each block of queries how many blocks of keys its sequences span."""
    blocks: Tensor
    """Which those are; the same numbers answer which queries a block of keys is for."""
    bounds: Tensor
    """Where sequences begin and the row ends; in scoring as many for every row of one length, the last ones alike."""
    longest: int
    """No sequence is longer."""
    has_flash: bool
    bias: Tensor | None = None
    """(layers, heads), added to a logit where STRM would forbid it."""

    def attend(self, place: Place, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return what each position reads in one layer."""
        changed = place.has_strm
        if not changed and self.has_flash and query.dtype in (torch.bfloat16, torch.float16):
            return _flash(query, key, value, self.bounds, self.longest, dropout)
        bias = self.bias.index_select(0, place.number)[0] if changed and self.bias is not None else None
        dropping = _dropping(dropout, query.shape[1], query.shape[2], query.device) if dropout else None
        masked = changed and bias is None
        if not query.is_cuda:
            return _dense(query, key, value, masked, *self.codes, bias, dropping)
        # Within a layer that is compiled as a whole the kernel becomes a part of it.
        attend = _flex if torch.compiler.is_compiling() else _compiled()
        return attend(
            query, key, value, masked, *self.codes, bias, dropping, self.fine, self.num_blocks, self.blocks
        )  # fmt: skip


def packed_masks(
    codes: PackedCodes, offsets: Tensor, longest: int, bias: Tensor | None = None
) -> PackedMasks:  # fmt: skip
    """Return the masks of one batch; sequences lie in order, so a block's sequences span one run of blocks."""
    fine = not torch.is_grad_enabled()
    block = FINE_BLOCK if fine else BLOCK
    low = offsets[codes.seq[::block].long()] // block
    high = (offsets[codes.seq[block - 1 :: block].long() + 1] - 1) // block
    numbers = torch.arange(len(low), device=low.device)
    blocks = (low[:, None] + numbers).clamp(max=len(low) - 1)
    counts, blocks = (tensor.to(torch.int32)[None, None] for tensor in (high - low + 1, blocks))
    size = len(codes.seq)
    # Training's rows have a length of their own each time; scoring's do not, and its graph knows one number of bounds.
    spare = 0 if torch.is_grad_enabled() else max(0, size // SHORT + size // longest + 2 - len(offsets))
    bounds = functional.pad(offsets, (0, spare), value=size).to(torch.int32)
    has_flash = offsets.is_cuda and torch.cuda.get_device_capability(offsets.device) >= OLDEST_WITH_FLASH
    return PackedMasks(codes, fine, counts, blocks, bounds, longest, has_flash, bias)


def _flash(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int, dropout: float) -> Tensor:
    # What torch.nn.attention.varlen_attn calls; that one has no dropout.
    rows = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    found = torch.ops.aten._flash_attention_forward(*rows, bounds, bounds, longest, longest, dropout, False, False)
    attended: Tensor = found[0]
    return attended.transpose(0, 1)[None]


def _flex(
    query: Tensor, key: Tensor, value: Tensor, masked: bool, seq: Tensor, word: Tensor, open_to: Tensor,
    bias: Tensor | None, dropping: Dropping | None, fine: bool, num_blocks: Tensor, blocks: Tensor,
) -> Tensor:  # fmt: skip
    size, block = query.shape[2], FINE_BLOCK if fine else BLOCK
    options = {"fwd_BLOCK_M": block, "fwd_BLOCK_N": block} if fine else None
    # Short blocks are for scoring, which has no gradients.
    places = 1 if fine else SPREAD
    spread = None if bias is None else bias[:, None, None].expand(-1, places, places)

    def plain(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return seq[q] == seq[k]

    def strm(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return (word[q] == word[k]) | (open_to[k] == seq[q])

    def changed(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        if spread is not None:
            score = torch.where(strm(b, h, q, k), score, score + spread[h, q % places, k % places])
        if dropping is not None:
            score = torch.where(_kept(dropping, h, q, k), score, -torch.inf)
        return score

    mask = BlockMask(
        (size, size), num_blocks, blocks, None, None, num_blocks, blocks, None, None, (block, block),
        strm if masked else plain,
    )  # fmt: skip
    score_mod = None if bias is None and dropping is None else changed
    found: Tensor = flex_attention(
        query,
        key,
        value,
        score_mod=score_mod,
        block_mask=mask,
        kernel_options=options,  # type: ignore[arg-type]
    )
    return found


@cache
def _compiled() -> Callable[..., Tensor]:
    _keep_whole()
    # For rows of any length: training's differ from step to step.
    return torch.compile(_flex, dynamic=True)


def compile_layers(base: nn.Module, dynamic: bool, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile an encoder's layers, FlexAttention's kernel inside; for each length of rows, or dynamic, once for all."""
    _keep_whole()
    # One after another they share what is compiled; as one graph BERT-large was not ready after 100 s.
    for layer in layers_of(base) or [base]:
        layer.compile(dynamic=dynamic, backend=backend)


def layers_of(base: nn.Module) -> list[nn.Module]:
    """Return the layers of an encoder built as BERT is, none of another."""
    return list(getattr(getattr(base, "encoder", None), "layer", None) or [])


def _keep_whole() -> None:
    # Several workers' graphs are cut where gradients are exchanged, which FlexAttention does not survive.
    torch._dynamo.config.optimize_ddp = False
    # The last layer has a hook that the others have not: it must not run their graph.
    torch._dynamo.config.skip_nnmodule_hook_guards = False


def _dense(
    query: Tensor, key: Tensor, value: Tensor, masked: bool, seq: Tensor, word: Tensor, open_to: Tensor,
    bias: Tensor | None, dropping: Dropping | None,
) -> Tensor:  # fmt: skip
    same = seq[:, None] == seq
    allowed = (word[:, None] == word) | (open_to == seq[:, None])
    mask = torch.zeros(query.shape[1:3] + key.shape[2:3], dtype=query.dtype, device=query.device)
    if bias is not None:
        mask = torch.where(allowed, mask, bias[:, None, None].to(query.dtype))
    if dropping is not None:
        heads, places = (torch.arange(count, device=query.device) for count in query.shape[1:3])
        mask = mask.masked_fill(~_kept(dropping, heads[:, None, None], places[:, None], places), -torch.inf)
    mask = mask.masked_fill(~(allowed if masked else same), -torch.inf)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _dropping(share: float, heads: int, size: int, device: torch.device) -> Dropping:
    """Return a random number for each head, query and key of one layer, and the limit below which a weight drops."""
    of_heads, of_queries, of_keys = (
        torch.randint(1 << bits, (count,), device=device, dtype=torch.int32)
        for bits, count in ((15, heads), (16, size), (16, size))
    )
    # Odd, so that no two numbers become one.
    return Dropping(of_heads | 1, of_queries, of_keys, torch.full((1,), share * (1 << 16), device=device).int())


def _kept(dropping: Dropping, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return whether a weight stays: the numbers of its place mixed, which backward can compute again."""
    # Sixteen bits by fifteen: nothing overflows, which compilers do not agree on.
    mixed = ((dropping.of_queries[query] ^ dropping.of_keys[key]) * dropping.of_heads[head]) & 0xFFFF
    mixed = ((mixed ^ (mixed >> 8)) * 28411) & 0xFFFF
    # A piece always sees itself, so that no softmax is over nothing.
    return (mixed >= dropping.limit[0]) | (query == key)
