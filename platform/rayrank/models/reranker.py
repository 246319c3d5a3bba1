"""The re-ranker: an encoder and one linear layer over [CLS]."""

import torch
from torch import Tensor, nn

from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import Encoder

RELEVANT = 1
"""The class of the pointwise head whose logit speaks for the passage."""


class Reranker(nn.Module):
    """Scores pairs; two outputs are the pointwise classes, one is the listwise score."""

    def __init__(self, encoder: Encoder, num_outputs: int) -> None:
        super().__init__()
        config = encoder.base.config
        self.encoder = encoder
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.head = nn.Linear(config.hidden_size, num_outputs)
        nn.init.normal_(self.head.weight, std=config.initializer_range)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return (pairs, outputs) float32 logits."""
        states = self.dropout(self.encoder.firsts(batch))
        # A score of bfloat16's eight bits ties passages that the encoder tells apart.
        with torch.autocast(states.device.type, enabled=False):
            logits: Tensor = self.head(states.float())
        return logits


def relevance_score(logits: Tensor) -> Tensor:
    """Return one number a pair to sort by, whichever phase the model comes from."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    return logits[:, RELEVANT] - logits[:, 1 - RELEVANT]


def listwise_head(model: Reranker) -> None:
    """Turn a pointwise head into a listwise one that orders passages as before: the difference of the two classes."""
    old = model.head
    model.head = nn.Linear(old.in_features, 1, device=old.weight.device)
    with torch.no_grad():
        model.head.weight.copy_(old.weight[[RELEVANT]] - old.weight[[1 - RELEVANT]])
        model.head.bias.copy_(old.bias[[RELEVANT]] - old.bias[[1 - RELEVANT]])
