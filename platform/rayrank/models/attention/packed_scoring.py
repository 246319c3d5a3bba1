"""Attention for scoring packed batches, where each sequence of a row attends to itself only.

On a GPU the Triton kernel derives from three codes per position which keys a query may attend to; no mask is stored.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op
from torch.nn import functional
from torch.utils._triton import has_triton

from rayrank.models.attention.padded import LayerIndex
from rayrank.models.attention.strm import PackedCodes
from rayrank.models.batches import PackedBatch

QUERY_BLOCK = 64
"""Queries that one program of the kernel computes; the length of a packed row for scoring is a multiple of it."""

KEY_BLOCK = 32
"""Keys that the kernel reads per step. Sequences are about a hundred pieces long, so larger steps would mostly read
more keys of neighbouring sequences, whose attention weights are zero."""

AMPERE = (8, 0)
"""Compute capability of the oldest GPUs with bfloat16 and FlashAttention."""


@dataclass(frozen=True)
class PackedScoringMasks:
    """The attention masks of a packed batch in scoring, as codes from which each layer derives its mask."""

    codes: PackedCodes
    key_ranges: Tensor
    """(blocks, 2): the first and last position, plus one, of the keys that each block of queries reads. Rows have at
    least two blocks: torch.compile specialises on a dimension of size 1."""
    bias: Tensor | None = None
    """(layers, heads): STRM's learned bias, added to the logits that STRM's mask would hide."""

    def attend(self, layer: LayerIndex, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Return the attention output of one layer, (1, heads, positions, head size) as its arguments are."""
        bias = layer.select(self.bias) if layer.has_strm and self.bias is not None else None
        rows = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        output: Tensor = packed_attention(*rows, *self.codes, self.key_ranges, bias, layer.has_strm, layer.window)
        return output.transpose(0, 1)[None]


def packed_scoring_masks(codes: PackedCodes, batch: PackedBatch, bias: Tensor | None = None) -> PackedScoringMasks:
    """Return the masks of a batch; the keys of a block of queries are contiguous, since sequences lie in order."""
    starts = batch.offsets[codes.seq[::QUERY_BLOCK].long()]
    ends = batch.offsets[codes.seq[QUERY_BLOCK - 1 :: QUERY_BLOCK].long() + 1]
    # The kernel reads whole blocks of keys, and a row is a whole number of them.
    return PackedScoringMasks(codes, torch.stack([starts // KEY_BLOCK * KEY_BLOCK, ends], 1), bias)


# A custom op is one node of a compiled graph; torch.compile does not trace into it.
@custom_op("rayrank::packed_attention", mutates_args=())
def packed_attention(
    query: Tensor, key: Tensor, value: Tensor, seq: Tensor, word: Tensor, visible_to: Tensor, key_ranges: Tensor,
    bias: Tensor | None, has_strm: bool, window: int | None,
) -> Tensor:  # fmt: skip
    """Return the (positions, heads, head size) attention output of a packed row."""
    if not query.is_cuda:
        return _attend_with_mask(query, key, value, seq, word, visible_to, bias, has_strm, window)
    # Imported here: only machines with a GPU need Triton.
    from rayrank.models.attention.kernel import attend

    with torch.cuda.device(query.device):
        return attend(
            query, key, value, seq, word, visible_to, key_ranges, bias, has_strm, QUERY_BLOCK, KEY_BLOCK, window
        )  # fmt: skip


@packed_attention.register_fake
def _(query: Tensor, *others: Any) -> Tensor:
    return query.new_empty(query.shape)


def _attend_with_mask(
    query: Tensor, key: Tensor, value: Tensor, seq: Tensor, word: Tensor, visible_to: Tensor,
    bias: Tensor | None, has_strm: bool, window: int | None,
) -> Tensor:  # fmt: skip
    """Compute the kernel's output on a CPU, by SDPA with a (positions, positions) mask; for short rows only."""
    mask = seq[:, None] == seq
    allowed = (word[:, None] == word) | (seq[:, None] == visible_to)
    if bias is not None:
        additive = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, -torch.inf)
        mask = torch.where(mask & ~allowed, bias.to(query.dtype)[:, None, None], additive)
    elif has_strm:
        mask = allowed
    if window is not None:
        # Sequences are contiguous, so positions of the row are as far apart as positions of the sequence.
        places = torch.arange(len(seq), device=seq.device)
        far = (places[:, None] - places).abs() > window
        mask = mask & ~far if mask.dtype == torch.bool else mask.masked_fill(far, -torch.inf)
    query, key, value = (tensor.transpose(0, 1) for tensor in (query, key, value))
    return functional.scaled_dot_product_attention(query, key, value, mask).transpose(0, 1).contiguous()


def can_pack() -> bool:
    """Return whether this machine can score packed batches; a GPU needs Triton and bfloat16."""
    if not torch.cuda.is_available():
        return True
    return has_triton() and torch.cuda.get_device_capability() >= AMPERE
