"""Compiling the transformer layers of an encoder with torch.compile."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rayrank.models.architectures import layers_of


def compile_layers(
    base: PreTrainedModel, group_share: float = 0, backend: str | Callable[..., Any] = "inductor"
) -> None:
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
    for first, *others in _groups(list(layers), max(1, int(group_share * len(layers)))):
        group = _LayerGroup([first, *others])
        group.compile(dynamic=True, backend=backend)
        # Set as nn.Module.compile sets it, so that the modules and the names of the weights stay the same: the call of
        # the first layer runs the whole group, and the calls of the others return their input.
        first._compiled_call_impl = group.__call__
        for layer in others:
            layer._compiled_call_impl = _identity


def _groups(layers: Sequence[nn.Module], size: int) -> Iterator[list[nn.Module]]:
    """Yield groups of up to `size` consecutive layers that get the same arguments."""
    # ModernBERT passes other rotary embeddings to layers with a window than to layers without.
    for _, same in groupby(layers, lambda layer: getattr(layer, "attention_type", None)):
        alike = list(same)
        yield from (alike[start : start + size] for start in range(0, len(alike), size))


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
