"""Linear layers with fp8 weights and inputs, for scoring on GPUs with fp8 matrix products."""

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from rayrank.core.errors import ConfigError
from rayrank.models.architectures import layers_of, why_padded
from rayrank.models.inference.fused_layers import fuse_projections, gelu_layers
from rayrank.models.reranker import Reranker

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max

EPSILON = 1e-12
"""Keeps a row of zeros from being divided by zero."""

NEGATIVE_GELU_MAX = 0.1701
"""An upper bound of GELU's absolute value for negative inputs."""

WIDTH_MULTIPLE = 16
"""fp8 matrix products need dimensions that are multiples of this."""


def check_fp8(model: Reranker) -> None:
    """Raise ConfigError if the model's architecture cannot be quantized to fp8."""
    base = model.encoder.base
    if not model.encoder.packs:
        raise ConfigError(
            f"backend=torch-fp8 cannot be used: it needs packed batches, but "
            f"{why_padded(base) or 'this GPU has no kernel for them'}; set backend=torch."
        )
    linears = [part for layer in layers_of(base) for part in layer.modules() if isinstance(part, nn.Linear)]
    for width in [width for linear in linears for width in (linear.in_features, linear.out_features)]:
        if width % WIDTH_MULTIPLE:
            raise ConfigError(
                f"backend=torch-fp8 cannot be used: the encoder has a linear layer of width {width}, and fp8 matrix "
                f"products need multiples of {WIDTH_MULTIPLE}; set backend=torch."
            )


def use_fp8_layers(base: PreTrainedModel) -> None:
    """Replace the linear layers of all transformer layers by fp8 ones; must not be called after `fuse_layers`."""
    fuse_projections(base)
    for layer in gelu_layers(base):
        layer.output.dense = Fp8Linear(layer.output.dense, after_gelu=True)
        layer.intermediate.intermediate_act_fn = nn.Identity()
    for module in [module for layer in layers_of(base) for module in layer.modules()]:
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Fp8Linear(child))


class Fp8Linear(nn.Module):
    """A linear layer with fp8 weights and inputs, with one scale per row of weights and per row of inputs."""

    weight: Tensor
    scale: Tensor

    def __init__(self, linear: nn.Linear, after_gelu: bool = False) -> None:
        """Quantize the weights of `linear`; with `after_gelu` the layer applies GELU to its inputs first."""
        super().__init__()
        rows = linear.weight.detach().float()
        scale = (rows.abs().amax(1, keepdim=True) / FP8_MAX).clamp(min=EPSILON)
        self.register_buffer("weight", (rows / scale).to(FP8))
        self.register_buffer("scale", scale.t().contiguous())
        self.bias, self.after_gelu = linear.bias, after_gelu

    def forward(self, states: Tensor) -> Tensor:
        """Return approximately the output of the linear layer."""
        rows = states.flatten(0, -2).float()
        if self.after_gelu:
            # GELU is increasing for positive inputs, so a row's largest input gives its largest output. That saves a
            # pass over the outputs.
            absmax = gelu(rows.amax(1, keepdim=True)).clamp(min=NEGATIVE_GELU_MAX)
            rows = gelu(rows)
        else:
            absmax = rows.abs().amax(1, keepdim=True).clamp(min=EPSILON)
        output = torch._scaled_mm(
            (rows * (FP8_MAX / absmax)).to(FP8), self.weight.t(), absmax / FP8_MAX, self.scale, self.bias,
            out_dtype=states.dtype, use_fast_accum=True,
        )  # fmt: skip
        return output.view(*states.shape[:-1], -1)


def gelu(values: Tensor) -> Tensor:
    """Return GELU's tanh form, written with a sigmoid, which GPUs compute faster."""
    return values * torch.sigmoid(1.5957691216057308 * (values + 0.044715 * values**3))
