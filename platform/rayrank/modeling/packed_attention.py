"""Attention over packed batches: one row of many sequences, each of which sees only itself, through FlexAttention.

On a CPU, where FlexAttention cannot be trained, the same rules become one dense mask: the reference, not a fast path.
FlexAttention drops none of its weights in training; the dropout of hidden states is the encoder's and stays.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from rayrank.modeling.strm import PackedCodes

BLOCK = 128
"""Positions a block of the mask; what lies in blocks no sequence spans costs nothing."""


@dataclass(frozen=True)
class PackedMasks:
    """What each layer of one packed batch sees: some layers STRM's mask or its learned bias, the others everything."""

    layers: Container[int]
    codes: PackedCodes
    num_blocks: Tensor
    """For each block of queries how many blocks of keys its sequences span."""
    blocks: Tensor
    """Which those are; the same numbers answer which queries a block of keys is for."""
    bias: Tensor | None = None
    """(layers, heads), added to a logit where STRM would forbid it."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return what each position reads in one layer."""
        changed = layer in self.layers
        bias = self.bias[layer] if changed and self.bias is not None else None
        rule = "bias" if bias is not None else "strm" if changed else "plain"
        parts = (*self.codes, self.num_blocks, self.blocks, bias)
        if not query.is_cuda:
            return _dense(rule, query, key, value, *parts)
        # Within an encoder that is compiled as a whole the kernel becomes a part of it.
        attend = _flex if torch.compiler.is_compiling() else _compiled()
        return attend(rule, query, key, value, *parts)


def packed_masks(codes: PackedCodes, offsets: Tensor, layers: Container[int], bias: Tensor | None) -> PackedMasks:
    """Return the masks of one batch; sequences lie in order, so a block's sequences span one run of blocks."""
    firsts = codes.seq[::BLOCK].long()
    lasts = codes.seq[BLOCK - 1 :: BLOCK].long()
    low = offsets[firsts] // BLOCK
    high = (offsets[lasts + 1] - 1) // BLOCK
    numbers = torch.arange(len(low), device=low.device)
    blocks = (low[:, None] + numbers).clamp(max=len(low) - 1)
    return PackedMasks(
        layers, codes, (high - low + 1).to(torch.int32)[None, None], blocks.to(torch.int32)[None, None], bias
    )


def _flex(
    rule: str, query: Tensor, key: Tensor, value: Tensor,
    seq: Tensor, word: Tensor, open_to: Tensor, num_blocks: Tensor, blocks: Tensor, bias: Tensor | None,
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
        strm if rule == "strm" else plain,
    )  # fmt: skip
    score_mod = biased if rule == "bias" else None
    found: Tensor = flex_attention(query, key, value, score_mod=score_mod, block_mask=mask)
    return found


@cache
def _compiled() -> Callable[..., Tensor]:
    # For rows of any length: training's differ from step to step.
    return torch.compile(_flex, dynamic=True)


def _dense(
    rule: str, query: Tensor, key: Tensor, value: Tensor,
    seq: Tensor, word: Tensor, open_to: Tensor, num_blocks: Tensor, blocks: Tensor, bias: Tensor | None,
) -> Tensor:  # fmt: skip
    same = seq[:, None] == seq
    allowed = (word[:, None] == word) | (open_to == seq[:, None])
    mask = allowed if rule == "strm" else same
    if bias is not None:
        weights = torch.where(allowed, 0.0, bias[:, None, None])
        mask = torch.where(same, weights, -torch.inf).to(query.dtype)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
