"""Preparing a worker's device, and a trained model for scoring on a GPU: bfloat16 or fp8, fused and compiled layers."""

from copy import deepcopy

import torch

from rayrank.core.config import ResourcesConfig
from rayrank.core.errors import ConfigError
from rayrank.models.inference.fp8 import check_fp8, use_fp8_layers
from rayrank.models.inference.fused_layers import fuse_layers
from rayrank.models.layers import compile_layers
from rayrank.models.reranker import Reranker

FP8_CAPABILITY = (8, 9)
"""Compute capability of the oldest GPUs with fp8 matrix products."""


def prepare_device(threads: int, resources: ResourcesConfig) -> torch.device:
    """Return the device of a worker, limited to the worker's threads, or on a GPU to its share of the memory."""
    if not torch.cuda.is_available():
        torch.set_num_threads(threads)
        return torch.device("cpu")
    # Without a limit PyTorch's cache would take memory from other processes on the same GPU.
    torch.cuda.set_per_process_memory_fraction(resources.train_gpus or 1.0)
    return torch.device("cuda")


def to_bfloat16(model: Reranker) -> None:
    """Convert the encoder of a model on a GPU to bfloat16, the precision of all scoring there."""
    first = next(model.parameters())
    # A bfloat16 model is left alone: converting it again would convert its fp8 weights back.
    if model.encoder.packs and first.is_cuda and first.dtype != torch.bfloat16:
        model.encoder.bfloat16()


def quantize_to_fp8(model: Reranker) -> None:
    """Convert a model on a GPU to bfloat16 with fp8 layers, or raise ConfigError."""
    check_fp8(model)
    device = next(model.parameters()).device
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < FP8_CAPABILITY:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
        raise ConfigError(
            f"backend=torch-fp8 cannot be used on {name}: it needs a GPU with fp8 matrix products (compute capability "
            f"8.9 or higher), such as an H100; set backend=torch."
        )
    to_bfloat16(model)
    use_fp8_layers(model.encoder.base)


def compile_for_scoring(model: Reranker, fp8: bool = False) -> None:
    """Convert a model on a GPU to bfloat16, or with `fp8` to fp8, and compile its layers for rows of all lengths."""
    if fp8:
        quantize_to_fp8(model)
    to_bfloat16(model)
    if model.encoder.packs and next(model.parameters()).is_cuda:
        fuse_layers(model.encoder.base)
        compile_layers(model.encoder.base)


def scoring_copy(model: Reranker) -> Reranker:
    """Return a bfloat16 copy of a model on a GPU, not compiled; on a CPU the model itself."""
    if not next(model.parameters()).is_cuda:
        return model
    copied = deepcopy(model)
    to_bfloat16(copied)
    return copied
