"""The re-ranker: an encoder and one linear layer over the [CLS] state."""

from typing import Any

import torch
from torch import Tensor, nn

from rayrank.models.architectures import hidden_dropout
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import Encoder

RELEVANT = 1
"""The index of the class `relevant` among the two outputs of a pointwise model."""


class Reranker(nn.Module):
    """Computes logits of pairs: two classes in a pointwise model, one score in a listwise model."""

    def __init__(self, encoder: Encoder, num_outputs: int) -> None:
        super().__init__()
        config = encoder.base.config
        self.encoder = encoder
        self.dropout = nn.Dropout(hidden_dropout(config))
        self.head = nn.Linear(config.hidden_size, num_outputs)
        nn.init.normal_(self.head.weight, std=config.initializer_range)
        nn.init.zeros_(self.head.bias)

    def description(self) -> dict[str, Any]:
        """Return how the model is saved, see `rayrank.models.saved`."""
        return {"kind": "reranker", "num_outputs": self.head.out_features}

    def forward(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return (pairs, outputs) float32 logits."""
        states = self.dropout(self.encoder.cls_states(batch))
        # float32: bfloat16 has 8 bits of precision, which would round different passages to the same score.
        with torch.autocast(states.device.type, enabled=False):
            logits: Tensor = self.head(states.float())
        return logits


def relevance_score(logits: Tensor) -> Tensor:
    """Return one score per pair: the listwise logit, or the difference of the two pointwise logits."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    return logits[:, RELEVANT] - logits[:, 1 - RELEVANT]


def listwise_head(model: Reranker) -> None:
    """Replace a pointwise head by a listwise head with the same scores, the difference of the two classes."""
    old = model.head
    model.head = nn.Linear(old.in_features, 1, device=old.weight.device)
    with torch.no_grad():
        model.head.weight.copy_(old.weight[[RELEVANT]] - old.weight[[1 - RELEVANT]])
        model.head.bias.copy_(old.bias[[RELEVANT]] - old.bias[[1 - RELEVANT]])
