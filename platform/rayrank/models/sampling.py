"""Top-k sampling from a sequence-to-sequence model.

transformers' `generate` draws from the whole vocabulary, also where all but `top_k` pieces have probability 0, and
continues with texts that have ended until the longest one ends. On a CPU that took most of the time.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from rayrank.models.batches import PaddedBatch
from rayrank.text.seq2seq import Seq2SeqTemplate

ENDED_SHARE = 0.25
"""Rows whose text has ended are dropped from the batch when this share of them has; dropping copies what is cached."""


@torch.inference_mode()
def sample(
    model: PreTrainedModel, passages: PaddedBatch, template: Seq2SeqTemplate, count: int, top_k: int,
    generator: torch.Generator,
) -> Tensor:  # fmt: skip
    """Return the ids of `count` sampled queries for each passage, (passages * count, length), padded."""
    encode: Any = model.get_encoder()
    states = encode(input_ids=passages.ids, attention_mask=passages.attention_mask).last_hidden_state
    states, mask = states.repeat_interleave(count, 0), passages.attention_mask.repeat_interleave(count, 0)
    given = torch.tensor(template.prompt, device=mask.device).expand(len(mask), -1)
    longest = template.query_length + len(template.suffix_ids)
    written = torch.full((len(mask), longest), template.pad_id, device=mask.device)
    # The batch loses the rows whose text has ended; `rows` says where in `written` those that are left belong.
    rows, cache = torch.arange(len(mask), device=mask.device), None
    has_ended = torch.zeros(len(mask), dtype=torch.bool, device=mask.device)
    for step in range(longest):
        answer: Any = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states), attention_mask=mask, decoder_input_ids=given,
            past_key_values=cache, use_cache=True,
        )  # fmt: skip
        given = draw_piece(answer.logits[:, -1], top_k, generator)
        written[rows, step] = given[:, 0].masked_fill(has_ended, template.pad_id)
        has_ended |= given[:, 0] == template.end_id
        kept, cache = (~has_ended).nonzero()[:, 0], answer.past_key_values
        if not len(kept):
            break
        if len(kept) <= (1 - ENDED_SHARE) * len(rows):
            given, states, mask, rows, has_ended = (each[kept] for each in (given, states, mask, rows, has_ended))
            cache.batch_select_indices(kept)
    return written[:, : step + 1]


def draw_piece(logits: Tensor, top_k: int, generator: torch.Generator) -> Tensor:
    """Return one id per row, drawn from its `top_k` most likely ones in proportion to their probabilities."""
    likely, ids = logits.float().topk(min(top_k, logits.shape[-1]))
    return ids.gather(1, torch.multinomial(likely.softmax(-1), 1, generator=generator))
