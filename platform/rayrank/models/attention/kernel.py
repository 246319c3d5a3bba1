"""The Triton kernel for attention over packed rows.

A program computes one block of queries in one head. The sequences that the block overlaps are contiguous, so it reads
one range of keys and derives from the codes of `PackedCodes` which of them each query may attend to. No mask is stored,
and a row may hold any number of blocks.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

PLAIN, MASKED, BIASED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""Attention without STRM, with STRM's mask, and with STRM's learned bias."""

LOG2_E = tl.constexpr(1.4426950408889634)
"""Logits are scaled by log2(e), since GPUs have an instruction for 2**x but none for e**x."""

HIDDEN = tl.constexpr(-1e30)
"""The logit of a key that a query may not attend to. -inf would give NaN (-inf - -inf) for a query that may attend to
no key of the first block read."""


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query, key, value, out, seq, word, visible_to, key_ranges, biases, query_stride, key_stride, value_stride, scale,
    window, mode: tl.constexpr, heads: tl.constexpr, head_size: tl.constexpr, query_block: tl.constexpr,
    key_block: tl.constexpr, has_window: tl.constexpr,
):  # fmt: skip
    head, block = tl.program_id(0) % heads, tl.program_id(0) // heads
    dims, queries = tl.arange(0, head_size), tl.arange(0, query_block)
    # int64, as key_ranges are: an offset into a long row's tensors can exceed 32 bits.
    first = block.to(tl.int64) * query_block
    q = tl.load(query + first * query_stride + head * head_size + queries[:, None] * query_stride + dims[None, :])
    query_seq = tl.load(seq + first + queries)
    query_word = tl.load(word + first + queries)
    bias = tl.load(biases + head) * LOG2_E if mode == BIASED else 0.0
    # Softmax in one pass over the keys: the sums so far are rescaled when a larger logit appears.
    largest = tl.full([query_block], HIDDEN, tl.float32)
    total = tl.zeros([query_block], tl.float32)
    output = tl.zeros([query_block, head_size], tl.float32)
    range_start, range_end = tl.load(key_ranges + 2 * block), tl.load(key_ranges + 2 * block + 1)
    if has_window:
        # Keys that are too far from all queries of the block are not read.
        range_start = tl.maximum(range_start, (first - window) // key_block * key_block)
        range_end = tl.minimum(range_end, first + query_block + window)
    for start in tl.range(range_start, range_end, key_block, num_stages=3):
        keys = tl.arange(0, key_block)
        k = tl.load(key + start * key_stride + head * head_size + keys[None, :] * key_stride + dims[:, None])
        logits = tl.dot(q, k, input_precision="ieee") * (scale * LOG2_E)
        logits = _mask(logits, query_seq, query_word, seq, word, visible_to, start, keys, bias, mode)
        if has_window:
            distance = tl.abs((first + queries)[:, None] - (start + keys)[None, :])
            logits = tl.where(distance <= window, logits, HIDDEN)
        new_largest = tl.maximum(largest, tl.max(logits, 1))
        weights = tl.exp2(logits - new_largest[:, None])
        rescale = tl.exp2(largest - new_largest)
        v = tl.load(value + start * value_stride + head * head_size + keys[:, None] * value_stride + dims[None, :])
        output = tl.dot(weights.to(v.dtype), v, output * rescale[:, None], input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        largest = new_largest
    offsets = (first + queries)[:, None] * (heads * head_size) + head * head_size + dims[None, :]
    tl.store(out + offsets, (output / total[:, None]).to(out.dtype.element_ty))


@triton.jit  # type: ignore[untyped-decorator]
def _mask(  # type: ignore[no-untyped-def]
    logits, query_seq, query_word, seq, word, visible_to, start, keys, bias, mode: tl.constexpr
):  # fmt: skip
    """Return the logits with those of forbidden keys replaced by HIDDEN, or with STRM's bias added."""
    if mode != PLAIN:
        same_word = query_word[:, None] == tl.load(word + start + keys)[None, :]
        allowed = same_word | (query_seq[:, None] == tl.load(visible_to + start + keys)[None, :])
    if mode != MASKED:
        same_seq = query_seq[:, None] == tl.load(seq + start + keys)[None, :]
    if mode == PLAIN:
        logits = tl.where(same_seq, logits, HIDDEN)
    elif mode == MASKED:
        logits = tl.where(allowed, logits, HIDDEN)
    else:
        logits = tl.where(same_seq, tl.where(allowed, logits, logits + bias), HIDDEN)
    return logits


def attend(
    query: Tensor, key: Tensor, value: Tensor, seq: Tensor, word: Tensor, visible_to: Tensor, key_ranges: Tensor,
    bias: Tensor | None, has_strm: bool, query_block: int, key_block: int, window: int | None = None,
) -> Tensor:  # fmt: skip
    """Return the (positions, heads, head size) attention output of one packed row.

    With a window, positions attend only to positions at most that far away.
    """
    positions, heads, size = query.shape
    # Triton's blocks are powers of two, so heads of another size are padded; few encoders have them.
    padded_size = triton.next_power_of_2(size)
    query, key, value = (
        tensor if tensor.stride()[1:] == (padded_size, 1) else pad(tensor, (0, padded_size - size)).contiguous()
        for tensor in (query, key, value)
    )
    out = torch.empty(positions, heads, padded_size, dtype=query.dtype, device=query.device)
    mode = (BIASED if bias is not None else MASKED if has_strm else PLAIN).value
    _attend[(heads * (positions // query_block),)](
        query, key, value, out, seq, word, visible_to, key_ranges, seq if bias is None else bias.float(),
        query.stride(0), key.stride(0), value.stride(0), size**-0.5, window or 0, mode, heads, padded_size,
        query_block, key_block, window is not None, num_warps=4,
    )  # fmt: skip
    return out if padded_size == size else out[..., :size].contiguous()
