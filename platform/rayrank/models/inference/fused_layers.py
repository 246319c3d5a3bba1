"""Fused layers for scoring on a GPU: one matrix product for queries, keys and values, and one that includes GELU."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import GELUActivation

from rayrank.models.architectures import architecture, attention_modules, layers_of
from rayrank.models.attention.per_layer import FUSED


def fuse_layers(base: PreTrainedModel) -> None:
    """Fuse the projections of queries, keys and values, and GELU (its tanh form) into the linear layer before it."""
    fuse_projections(base)
    for layer in gelu_layers(base):
        layer.intermediate.dense = LinearGelu(layer.intermediate.dense)
        layer.intermediate.intermediate_act_fn = nn.Identity()


class LinearGelu(nn.Module):
    """A linear layer and GELU in one kernel, which does not write the linear layer's output to memory."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, states: Tensor) -> Tensor:
        """Return GELU of the linear layer's output."""
        output = torch._addmm_activation(
            self.linear.bias, states.flatten(0, -2), self.linear.weight.t(), use_gelu=True
        )  # fmt: skip
        return output.view(*states.shape[:-1], -1)


def fuse_projections(base: PreTrainedModel) -> None:
    """Concatenate the projections of queries, keys and values in all layers; attention splits their output again."""
    names = architecture(base.config).projections
    for module in attention_modules(base):
        parts = [getattr(module, name, None) for name in names]
        if parts and all(isinstance(part, nn.Linear) and part.bias is not None for part in parts):
            # The encoder still calls the other two, but attention ignores their output.
            for name, fused in zip(names, (_concatenate(parts), nn.Identity(), nn.Identity()), strict=True):  # type: ignore[arg-type]
                setattr(module, name, fused)
            setattr(module, FUSED, True)


@torch.no_grad()
def _concatenate(parts: list[nn.Linear]) -> nn.Linear:
    weight = torch.cat([part.weight for part in parts])
    fused = nn.Linear(weight.shape[1], weight.shape[0], device="meta")
    fused.weight = nn.Parameter(weight, requires_grad=False)
    fused.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    return fused


def gelu_layers(base: PreTrainedModel) -> list[Any]:
    """Return the layers whose feed-forward network is built as BERT's: a linear layer, GELU, a linear layer."""
    found = []
    for layer in layers_of(base):
        inner, outer = getattr(layer, "intermediate", None), getattr(layer, "output", None)
        is_gelu = isinstance(getattr(inner, "intermediate_act_fn", None), GELUActivation)
        if is_gelu and all(isinstance(getattr(part, "dense", None), nn.Linear) for part in (inner, outer)):
            found.append(layer)
    return found
