"""An attention function for transformers encoders in which every layer has its own mask."""

from collections.abc import Container
from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rayrank.models.attention.packed_scoring import PackedScoringMasks
from rayrank.models.attention.packed_training import PackedTrainingMasks
from rayrank.models.attention.padded import LayerIndex, PaddedMasks

PER_LAYER = "rayrank_per_layer"
"""The name of this attention function in transformers' registry."""


def per_layer_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    layer_masks: PaddedMasks | PackedScoringMasks | PackedTrainingMasks | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """Attend with this layer's mask of `layer_masks`, or as SDPA does if there is none.

    An encoder's forward passes keyword arguments that it does not know, such as `layer_masks`, on to this function.
    """
    query, key, value = split_fused(module, query, key, value)
    if layer_masks is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    layer: LayerIndex = module.layer_index  # type: ignore[assignment]
    if isinstance(layer_masks, PaddedMasks):
        mask = layer_masks.for_layer(layer, query.dtype)
        return sdpa_attention_forward(module, query, key, value, mask, **options)
    output = layer_masks.attend(layer, query, key, value, options.get("dropout", 0.0))
    return output.transpose(1, 2).contiguous(), None


def split_fused(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Return query, key and value; if their projections are fused, `query` holds the heads of all three."""
    return query.chunk(3, dim=1) if isinstance(module.key, nn.Identity) else (query, key, value)


def set_layer_indices(base: PreTrainedModel, strm_layers: Container[int]) -> None:
    """Give every attention module of an encoder its LayerIndex."""
    for module in list(base.modules()):
        if (index := getattr(module, "layer_idx", None)) is not None:
            module.layer_index = LayerIndex(index, index in strm_layers)


def has_layer_indices(base: PreTrainedModel) -> bool:
    """Return whether each layer has an attention module of its own; encoders such as ALBERT repeat one layer."""
    indices = {getattr(module, "layer_idx", None) for module in base.modules()} - {None}
    return base._supports_attention_backend and indices == set(range(base.config.num_hidden_layers))


AttentionInterface.register(PER_LAYER, per_layer_attention)
AttentionMaskInterface.register(PER_LAYER, sdpa_mask)
