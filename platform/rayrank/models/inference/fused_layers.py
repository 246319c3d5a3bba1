"""A trained encoder made fast for a GPU: the same layers in fewer and cheaper products, which nobody trains again."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import GELUActivation

from rayrank.core.errors import ConfigError
from rayrank.models.attention.packed import layers_of
from rayrank.models.reranker import Reranker

EIGHT_BITS = torch.float8_e4m3fn
LARGEST = torch.finfo(EIGHT_BITS).max

SMALLEST = 1e-12
"""No scale is smaller: a row of zeros has one, too."""

LOWEST_GELU = 0.1701
"""No value of GELU is farther below zero."""

STEP = 16
"""Widths that a product of eight bits can have are multiples of it."""


def fuse(base: PreTrainedModel) -> None:
    """Let one product make queries, keys and values, and another apply GELU as well, by tanh."""
    _join_projections(base)
    for layer in _layers_with_gelu(base):
        layer.intermediate.dense = LinearGelu(layer.intermediate.dense)
        layer.intermediate.intermediate_act_fn = nn.Identity()


def check_eight_bits(model: Reranker) -> None:
    """Refuse a model whose layers cannot have eight bits a weight."""
    base = model.encoder.base
    if not model.encoder.packs:
        raise ConfigError(
            f"backend=torch-fp8 cannot be used: the layers of {type(base).__name__} are not built as BERT's are, with "
            f"heads of 16 numbers or more; set it to torch."
        )
    layers = [part for layer in layers_of(base) for part in layer.modules() if isinstance(part, nn.Linear)]
    for width in [width for layer in layers for width in (layer.in_features, layer.out_features)]:
        if width % STEP:
            raise ConfigError(
                f"backend=torch-fp8 cannot be used: the encoder has layers {width} wide, and GPUs multiply eight bits "
                f"in multiples of {STEP}; set it to torch."
            )


def use_eight_bits(base: PreTrainedModel) -> None:
    """Let floats of eight bits be multiplied in all layers, twice as many at a time; not after `fuse`."""
    _join_projections(base)
    for layer in _layers_with_gelu(base):
        layer.output.dense = LinearOfEightBits(layer.output.dense, after_gelu=True)
        layer.intermediate.intermediate_act_fn = nn.Identity()
    for module in [module for layer in layers_of(base) for module in layer.modules()]:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, LinearOfEightBits(child))


class LinearGelu(nn.Module):
    """A linear layer and GELU in one kernel: what lies between them is never written to memory."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, states: Tensor) -> Tensor:
        """Return the activations."""
        found = torch._addmm_activation(
            self.linear.bias, states.flatten(0, -2), self.linear.weight.t(), use_gelu=True
        )  # fmt: skip
        return found.view(*states.shape[:-1], -1)


class LinearOfEightBits(nn.Module):
    """A linear layer whose weights and inputs are floats of eight bits, each row of either with a scale of its own."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, after_gelu: bool = False) -> None:
        """Take the layer; `after_gelu` if its inputs still have to go through GELU."""
        super().__init__()
        rows = linear.weight.detach().float()
        scale = (rows.abs().amax(1, keepdim=True) / LARGEST).clamp(min=SMALLEST)
        self.register_buffer("weight", (rows / scale).to(EIGHT_BITS))
        self.register_buffer("scale", scale.t().contiguous())
        self.bias, self.after_gelu = linear.bias, after_gelu

    def forward(self, states: Tensor) -> Tensor:
        """Return what the linear layer would, nearly."""
        rows = states.flatten(0, -2).float()
        if self.after_gelu:
            # GELU rises where it is positive, so the largest input tells the largest output: one pass less over all.
            top = gelu(rows.amax(1, keepdim=True)).clamp(min=LOWEST_GELU)
            rows = gelu(rows)
        else:
            top = rows.abs().amax(1, keepdim=True).clamp(min=SMALLEST)
        found = torch._scaled_mm(
            (rows * (LARGEST / top)).to(EIGHT_BITS), self.weight.t(), top / LARGEST, self.scale, self.bias,
            out_dtype=states.dtype, use_fast_accum=True,
        )  # fmt: skip
        return found.view(*states.shape[:-1], -1)


def gelu(values: Tensor) -> Tensor:
    """Return GELU by tanh, written as the sigmoid that it is: a GPU is faster at that."""
    return values * torch.sigmoid(1.5957691216057308 * (values + 0.044715 * values**3))


def _join_projections(base: PreTrainedModel) -> None:
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


def _layers_with_gelu(base: PreTrainedModel) -> list[Any]:
    """Return the layers built as BERT's are, with a linear layer, GELU and another linear layer at their end."""
    found = []
    for layer in layers_of(base):
        inner, outer = getattr(layer, "intermediate", None), getattr(layer, "output", None)
        is_gelu = isinstance(getattr(inner, "intermediate_act_fn", None), GELUActivation)
        if is_gelu and all(isinstance(getattr(part, "dense", None), nn.Linear) for part in (inner, outer)):
            found.append(layer)
    return found
