"""The kernel of attention within packed rows, in Triton, which only machines with a GPU have to have.

A program computes one block of queries in one head. The sequences that the block holds parts of lie side by side, so
it reads one run of keys, and which of them a query sees is worked out from their codes: no mask is ever written down,
and rows may have any length.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.functional import pad

PLAIN, MASKED, BIASED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)

LOG2_E = tl.constexpr(1.4426950408889634)
"""Exponents are of two: a GPU has an instruction for that."""

HIDDEN = tl.constexpr(-1e30)
"""The logit of what is not seen. Not infinity: a query may see nothing of the first keys read."""


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query, key, value, out, seq, word, open_to, spans, biases, query_row, key_row, value_row, scale,
    form: tl.constexpr, heads: tl.constexpr, size: tl.constexpr, num_queries: tl.constexpr, num_read: tl.constexpr,
):  # fmt: skip
    head, block = tl.program_id(0) % heads, tl.program_id(0) // heads
    wide, queries = tl.arange(0, size), tl.arange(0, num_queries)
    # 64 bits, as spans have: of what a row holds there may be more than 32 can count.
    first = block.to(tl.int64) * num_queries
    q = tl.load(query + first * query_row + head * size + queries[:, None] * query_row + wide[None, :])
    own_seq = tl.load(seq + first + queries)
    own_word = tl.load(word + first + queries)
    logit_bias = tl.load(biases + head) * LOG2_E if form == BIASED else 0.0
    largest = tl.full([num_queries], HIDDEN, tl.float32)
    total = tl.zeros([num_queries], tl.float32)
    read = tl.zeros([num_queries, size], tl.float32)
    for start in tl.range(tl.load(spans + 2 * block), tl.load(spans + 2 * block + 1), num_read, num_stages=3):
        keys = tl.arange(0, num_read)
        k = tl.load(key + start * key_row + head * size + keys[None, :] * key_row + wide[:, None])
        logits = tl.dot(q, k, input_precision="ieee") * (scale * LOG2_E)
        if form != PLAIN:
            same_word = own_word[:, None] == tl.load(word + start + keys)[None, :]
            seen = same_word | (own_seq[:, None] == tl.load(open_to + start + keys)[None, :])
        if form != MASKED:
            same = own_seq[:, None] == tl.load(seq + start + keys)[None, :]
        if form == PLAIN:
            logits = tl.where(same, logits, HIDDEN)
        elif form == MASKED:
            logits = tl.where(seen, logits, HIDDEN)
        else:
            logits = tl.where(same, tl.where(seen, logits, logits + logit_bias), HIDDEN)
        now = tl.maximum(largest, tl.max(logits, 1))
        weights = tl.exp2(logits - now[:, None])
        kept = tl.exp2(largest - now)
        v = tl.load(value + start * value_row + head * size + keys[:, None] * value_row + wide[None, :])
        read = tl.dot(weights.to(v.dtype), v, read * kept[:, None], input_precision="ieee")
        total = total * kept + tl.sum(weights, 1)
        largest = now
    places = (first + queries)[:, None] * (heads * size) + head * size + wide[None, :]
    tl.store(out + places, (read / total[:, None]).to(out.dtype.element_ty))


def attend(
    query: Tensor, key: Tensor, value: Tensor, seq: Tensor, word: Tensor, open_to: Tensor, spans: Tensor,
    bias: Tensor | None, masked: bool, block: int, keys: int,
) -> Tensor:  # fmt: skip
    """Return (positions, heads, size) of what each position reads: `block` queries at once, `keys` keys a step."""
    positions, heads, size = query.shape
    # The kernel counts in powers of two; few encoders have heads of another size.
    width = triton.next_power_of_2(size)
    query, key, value = (
        tensor if tensor.stride()[1:] == (width, 1) else pad(tensor, (0, width - size)).contiguous()
        for tensor in (query, key, value)
    )
    out = torch.empty(positions, heads, width, dtype=query.dtype, device=query.device)
    form = (BIASED if bias is not None else MASKED if masked else PLAIN).value
    _attend[(heads * (positions // block),)](
        query, key, value, out, seq, word, open_to, spans, seq if bias is None else bias.float(),
        query.stride(0), key.stride(0), value.stride(0), size**-0.5, form, heads, width, block, keys, num_warps=4,
    )  # fmt: skip
    return out if width == size else out[..., :size].contiguous()
