"""The attention mask of each layer of an encoder over a padded batch: STRM's mask, STRM's learned bias, or none."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class LayerIndex(nn.Module):
    """The index of an attention module's layer, whether STRM applies there, and its window if it has one.

    The index is a tensor, since torch.compile would compile a graph of its own for every layer with another int.
    """

    index: Tensor

    def __init__(self, index: int, has_strm: bool, window: int | None = None) -> None:
        """Take the largest distance at which positions attend to each other as `window`, None if it has no limit."""
        super().__init__()
        self.has_strm, self.window = has_strm, window
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
        allowed = self.allowed if layer.has_strm else None
        near = None if layer.window is None else self._near(layer.window)
        if allowed is None or self.bias is None:
            mask = present if allowed is None else allowed
            return mask if near is None else mask & near
        # SDPA requires an additive mask to have the queries' dtype, which autocast chooses.
        bias = layer.select(self.bias).to(dtype)[:, None, None]
        padding = torch.zeros_like(present, dtype=dtype).masked_fill(~present, -torch.inf)
        mask = torch.where(present & ~allowed, bias, padding)
        return mask if near is None else mask.masked_fill(~near, -torch.inf)

    def _near(self, window: int) -> Tensor:
        """Return the (batch, 1, length, length) mask of the keys within a window around each query."""
        places = torch.arange(self.present.shape[1], device=self.present.device)
        # Padding may attend to all keys: attention to none at all would be NaN.
        return ((places[:, None] - places).abs() <= window) | ~self.present[:, None, :, None]


def additive(mask: Tensor) -> Tensor:
    """Return a mask as numbers to add to attention logits; a boolean mask is converted, one of numbers unchanged."""
    return torch.where(mask, 0.0, -torch.inf) if mask.dtype == torch.bool else mask
