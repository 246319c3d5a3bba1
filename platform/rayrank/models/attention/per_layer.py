"""Attention in which every layer has its own mask; it takes the place of SDPA in an encoder as it comes."""

from collections.abc import Container
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rayrank.models.attention.layer_masks import LayerMasks, Place
from rayrank.models.attention.packed import RowMasks, SpreadMasks

PER_LAYER = "rayrank_per_layer"
"""The name under which transformers knows this attention."""


def per_layer_sdpa(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    layer_masks: LayerMasks | RowMasks | SpreadMasks | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend as SDPA does, with this layer's own mask; what an encoder's forward gets beyond its own arguments,
    such as `layer_masks`, it hands on to here."""
    query, key, value = separate(module, query, key, value)
    if layer_masks is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    place: Place = module.place  # type: ignore[assignment]
    if isinstance(layer_masks, LayerMasks):
        return sdpa_attention_forward(module, query, key, value, layer_masks.of(place, query.dtype), **options)
    found = layer_masks.attend(place, query, key, value, options.get("dropout", 0.0))
    return found.transpose(1, 2).contiguous(), None


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
