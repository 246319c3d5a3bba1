"""Attention between the word pieces of a query and those of a passage, layer by layer.

`explain` merges pieces to words; here the pieces stay apart, because they are what STRM concerns.
"""

from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.bundle.explain import attention_weights, copy_sharing_weights
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker


class PieceAttention(NamedTuple):
    """The ids of a query and of a passage as the model reads them, and the attention from the first to the second."""

    query: list[int]
    passage: list[int]
    weights: Tensor
    """(layers, heads, query pieces, passage pieces)."""
    score: float

    def mean(self, layers: Literal["last", "mean"]) -> NDArray[np.float32]:
        """Return the mean over the heads of the last layer, or over those of all layers."""
        found: NDArray[np.float32] = (self.weights[-1:] if layers == "last" else self.weights).mean((0, 1)).numpy()
        return found


def piece_attention(model: Reranker, texts: PairTexts, query_row: int, passage_row: int) -> PieceAttention:
    """Return the attention of one pair; markers and special tokens are left out."""
    device = next(model.parameters()).device
    batch = texts.padded(np.array([query_row]), np.array([passage_row]), device)
    query, passage = _positions(batch.ids[0], batch.token_types[0], texts)
    every = torch.eye(len(batch.ids[0]), device=device)
    weights, score = attention_weights(copy_sharing_weights(model), batch, every[query], every[:, passage])
    return PieceAttention(batch.ids[0, query].tolist(), batch.ids[0, passage].tolist(), weights.cpu(), score)


def _positions(ids: Tensor, token_types: Tensor, texts: PairTexts) -> tuple[Tensor, Tensor]:
    """Return where the pieces of the query and of the passage are: the query follows the type if there is one."""
    template, markers = texts.template, texts.template.markers
    is_text = torch.ones_like(ids, dtype=torch.bool) if markers is None else ids < markers.first_id
    in_prefix = token_types == 0
    # The prefix is `[CLS] type [SEP] query [SEP]` or `[CLS] query [SEP]`.
    seps = (in_prefix & (ids == template.sep_id)).nonzero()[:, 0].tolist()
    start, stop = (seps[0] if template.has_type else 0), int(in_prefix.sum()) - 1
    places = torch.arange(len(ids), device=ids.device)
    query = is_text & (places > start) & (places < stop)
    passage = is_text & ~in_prefix & (places < len(ids) - 1)
    return places[query], places[passage]
