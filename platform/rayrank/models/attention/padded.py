"""The attention mask of each layer of an encoder over a padded batch: STRM's mask, STRM's learned bias, or none."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class LayerIndex(nn.Module):
    """The index of an attention module's layer, and whether STRM applies there.

    The index is a tensor, since torch.compile would compile a graph of its own for every layer with another int.
    """

    index: Tensor

    def __init__(self, index: int, has_strm: bool) -> None:
        super().__init__()
        self.has_strm = has_strm
        self.register_buffer("index", torch.tensor([index]), persistent=False)

    def select(self, biases: Tensor) -> Tensor:
        """Return this layer's row of a (layers, heads) tensor."""
        return biases.index_select(0, self.index)[0]


@dataclass(frozen=True)
class PaddedMasks:
    """The attention masks of a padded batch."""

    present: Tensor
    """(batch, length), False for padding."""
    allowed: Tensor | None
    """STRM's boolean (batch, 1, length, length) mask; None if no layer uses STRM."""
    bias: Tensor | None = None
    """(layers, heads): with STRM's learned bias, the number added to a logit where `allowed` is False."""

    def for_layer(self, layer: LayerIndex, dtype: torch.dtype) -> Tensor:
        """Return the mask of one layer for SDPA: boolean, or numbers of type `dtype` to add to the logits."""
        present = self.present[:, None, None, :]
        if not layer.has_strm or self.allowed is None:
            return present
        if self.bias is None:
            return self.allowed
        # SDPA requires an additive mask to have the queries' dtype, which autocast chooses.
        bias = layer.select(self.bias).to(dtype)[:, None, None]
        padding = torch.zeros_like(present, dtype=dtype).masked_fill(~present, -torch.inf)
        return torch.where(present & ~self.allowed, bias, padding)
