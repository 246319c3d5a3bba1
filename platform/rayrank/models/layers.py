"""The transformer layers of an encoder: finding them, and compiling them with torch.compile."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


def layers_of(base: nn.Module) -> list[nn.Module]:
    """Return the layers of an encoder with BERT's module structure, and none of any other encoder."""
    return list(getattr(getattr(base, "encoder", None), "layer", None) or [])


def compile_layers(base: nn.Module, group_share: float = 0, backend: str | Callable[..., Any] = "inductor") -> None:
    """Compile an encoder's layers for batches of all sizes; each graph holds `group_share` of the layers, at least one.

    Groups of identical structure share one compiled graph.
    """
    # DDPOptimizer would split each graph at its gradient buckets, in the middle of a layer.
    torch._dynamo.config.optimize_ddp = False
    # Only the last layer has a forward hook, so it must not reuse the graph of the others.
    torch._dynamo.config.skip_nnmodule_hook_guards = False
    layers = layers_of(base)
    if not layers:
        base.compile(dynamic=True, backend=backend)
        return
    size = max(1, int(group_share * len(layers)))
    for start in range(0, len(layers), size):
        first, *others = layers[start : start + size]
        group = _LayerGroup([first, *others])
        group.compile(dynamic=True, backend=backend)
        # Set as nn.Module.compile sets it, so that the modules and the names of the weights stay the same: the call of
        # the first layer runs the whole group, and the calls of the others return their input.
        first._compiled_call_impl = group.__call__
        for layer in others:
            layer._compiled_call_impl = _identity


class _LayerGroup(nn.Module):
    """Consecutive layers that are compiled as one graph."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, states: Tensor, *given: Any, **options: Any) -> Tensor:
        """Return the output of the last layer."""
        for layer in self.layers:
            states = layer._call_impl(states, *given, **options)  # type: ignore[no-untyped-call]
        return states


def _identity(states: Tensor, *given: Any, **options: Any) -> Tensor:
    return states
