"""Attention of transformers encoders in which every layer has its own mask."""

from typing import Any

from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from rayrank.models.architectures import architecture, attention_modules, window_of
from rayrank.models.attention.packed_scoring import PackedScoringMasks
from rayrank.models.attention.packed_training import PackedTrainingMasks
from rayrank.models.attention.padded import LayerIndex, PaddedMasks, additive

LayerMasks = PaddedMasks | PackedScoringMasks | PackedTrainingMasks
"""The masks of all layers for one batch."""

FUSED = "has_fused_projections"
"""The attribute of an attention module whose query projection computes keys and values too."""

PER_LAYER = "rayrank_per_layer"
"""The name of this attention function in transformers' registry."""


def per_layer_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    layer_masks: LayerMasks | None = None, **options: Any,
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
    return query.chunk(3, dim=1) if getattr(module, FUSED, False) else (query, key, value)


def set_layer_indices(base: PreTrainedModel) -> None:
    """Give every attention module of an encoder its LayerIndex; no layer has STRM at first."""
    for index, module in enumerate(attention_modules(base)):
        module.layer_index = LayerIndex(index, False, window_of(base.config, index))


class MaskArguments:
    """Masks for encoders whose attention function cannot be replaced: hooks change the mask that it is called with."""

    def __init__(self, base: PreTrainedModel) -> None:
        """Register the hooks; without `masks` they change nothing."""
        self.masks: PaddedMasks | None = None
        self._are_added = architecture(base.config).mask == "added"
        for module in attention_modules(base):
            module.register_forward_pre_hook(self._replace)

    def _replace(self, module: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Forward pre-hook of an attention module: replace its second argument by the layer's mask."""
        if self.masks is None:
            return None
        states, _, *others = given
        mask = self.masks.for_layer(module.layer_index, states.dtype)  # type: ignore[arg-type]
        return states, additive(mask) if self._are_added else mask, *others


AttentionInterface.register(PER_LAYER, per_layer_attention)
AttentionMaskInterface.register(PER_LAYER, sdpa_mask)
