"""What each layer of an encoder sees: some layers STRM's mask or its learned bias, the others everything."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Place(nn.Module):
    """Where in the encoder an attention is; a tensor has the number, as graphs are compiled anew for other ints."""

    number: Tensor

    def __init__(self, layer: int, has_strm: bool) -> None:
        super().__init__()
        self.has_strm = has_strm
        self.register_buffer("number", torch.tensor([layer]), persistent=False)

    def bias(self, of_layers: Tensor) -> Tensor:
        """Return this layer's row of (layers, heads) numbers."""
        return of_layers.index_select(0, self.number)[0]


@dataclass(frozen=True)
class LayerMasks:
    """The masks of one rectangle of inputs."""

    present: Tensor
    """(batch, length), False for padding."""
    allowed: Tensor | None
    """STRM's boolean (batch, 1, length, length) mask; None where no layer has it."""
    bias: Tensor | None = None
    """(layers, heads), added to a logit where `allowed` is False instead of forbidding it."""

    def of(self, place: Place, dtype: torch.dtype) -> Tensor:
        """Return the mask of one layer, boolean or to be added."""
        present = self.present[:, None, None, :]
        if not place.has_strm or self.allowed is None:
            return present
        if self.bias is None:
            return self.allowed
        # SDPA wants a mask to be added in the query's type, which autocast chooses.
        bias = place.bias(self.bias).to(dtype)[:, None, None]
        padding = torch.zeros_like(present, dtype=dtype).masked_fill(~present, -torch.inf)
        return torch.where(present & ~self.allowed, bias, padding)
