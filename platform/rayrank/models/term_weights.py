"""DeepCT's model: an encoder and one linear layer over the state of each word piece."""

from typing import Any

import torch
from torch import Tensor, nn

from rayrank.models.architectures import hidden_dropout
from rayrank.models.batches import PackedBatch, PaddedBatch, pack, pad
from rayrank.models.encoder import Encoder
from rayrank.text.ragged import Rows, Windows, join
from rayrank.text.template import Sequences, Template


class TermWeights(nn.Module):
    """Computes one weight for each piece; a word's weight is that of its first piece, and the others are not used."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        config = encoder.base.config
        self.encoder = encoder
        self.dropout = nn.Dropout(hidden_dropout(config))
        self.head = nn.Linear(config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=config.initializer_range)
        nn.init.zeros_(self.head.bias)

    def description(self) -> dict[str, Any]:
        """Return how the model is saved, see `rayrank.models.saved`."""
        return {"kind": "term_weights"}

    def forward(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return the float32 weight at each position of a batch, padding included, in the shape of its ids."""
        states = self.dropout(self.encoder(batch))
        with torch.autocast(states.device.type, enabled=False):
            weights: Tensor = self.head(states.float())
        return weights.view(batch.ids.shape)


def batch_of(inputs: Windows, rows: Rows, template: Template, packed: bool) -> PaddedBatch | PackedBatch:
    """Return `[CLS] passage [SEP]` inputs as a padded batch or as a packed row."""
    padded = pad(Sequences(join(inputs.take(rows)), inputs.lengths(rows)), template.pad_id)
    return pack(padded, template) if packed else padded
