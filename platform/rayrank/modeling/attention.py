"""Attention in which every layer has its own mask; it takes the place of SDPA in an encoder as it comes."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rayrank.modeling.packed_attention import PackedMasks, Place

PER_LAYER = "rayrank_per_layer"
"""The name under which transformers knows this attention."""


@dataclass(frozen=True)
class LayerMasks:
    """What each layer of one batch sees: some layers STRM's mask or its learned bias, the others everything."""

    layers: Container[int]
    allowed: Tensor
    """STRM's boolean (batch, 1, length, length) mask."""
    present: Tensor
    """(batch, length), False for padding."""
    bias: Tensor | None = None
    """(layers, heads), added to a logit where `allowed` is False instead of forbidding it."""

    def of(self, layer: int, plain: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Return the mask of one layer, boolean or to be added; `plain` is what it would have seen without STRM."""
        if layer not in self.layers:
            return plain
        if self.bias is None:
            return self.allowed
        present = self.present[:, None, None, :]
        # SDPA wants a mask to be added in the query's type, which autocast chooses.
        bias = self.bias[layer].to(dtype)[:, None, None]
        padding = torch.zeros_like(present, dtype=dtype).masked_fill(~present, -torch.inf)
        return torch.where(present & ~self.allowed, bias, padding)


def per_layer_sdpa(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    layer_masks: LayerMasks | PackedMasks | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend as SDPA does, with this layer's own mask; what an encoder's forward gets beyond its own arguments,
    such as `layer_masks`, it hands on to here."""
    query, key, value = separate(module, query, key, value)
    if isinstance(layer_masks, PackedMasks):
        place: Place = module.place  # type: ignore[assignment]
        found = layer_masks.attend(place, query, key, value, options.get("dropout", 0.0))
        return found.transpose(1, 2).contiguous(), None
    if layer_masks is not None:
        attention_mask = layer_masks.of(module.layer_idx, attention_mask, query.dtype)  # type: ignore[arg-type]
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)


def fuse_projections(base: PreTrainedModel) -> None:
    """Let one product make queries, keys and values: faster, and no longer the modules that were trained."""
    for module in list(base.modules()):
        parts = [getattr(module, name, None) for name in ("query", "key", "value")]
        if hasattr(module, "place") and all(isinstance(part, nn.Linear) and part.bias is not None for part in parts):
            module.query = _side_by_side(parts)  # type: ignore[arg-type]
            # The encoder asks for all three; what these hand on is not read.
            module.key = module.value = nn.Identity()


@torch.no_grad()
def _side_by_side(parts: list[nn.Linear]) -> nn.Linear:
    weight = torch.cat([part.weight for part in parts])
    whole = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    whole.weight = nn.Parameter(weight, requires_grad=False)
    whole.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    return whole


def separate(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Return the three as heads of their own; where projections are fused the first has the heads of all."""
    return query.chunk(3, dim=1) if isinstance(module.key, nn.Identity) else (query, key, value)


def tell_places(base: PreTrainedModel, layers: Container[int]) -> None:
    """Tell every attention of an encoder where it is, and whether STRM changes it."""
    for module in list(base.modules()):
        if (number := getattr(module, "layer_idx", None)) is not None:
            module.place = Place(number, number in layers)


def numbers_its_layers(base: PreTrainedModel) -> bool:
    """Return whether each layer of an encoder can be told from the others; some share one layer's weights."""
    numbers = {getattr(module, "layer_idx", None) for module in base.modules()} - {None}
    return base._supports_attention_backend and numbers == set(range(base.config.num_hidden_layers))


AttentionInterface.register(PER_LAYER, per_layer_sdpa)
AttentionMaskInterface.register(PER_LAYER, sdpa_mask)
