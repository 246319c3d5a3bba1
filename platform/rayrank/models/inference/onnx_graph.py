"""A re-ranker as an ONNX graph from ids to scores, which computes STRM's masks itself and can have int8 weights.

The encoder is traced with an attention function that becomes one node, ONNX Runtime's MultiHeadAttention.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from rayrank.core.copies import temporary_folder
from rayrank.core.errors import ConfigError
from rayrank.models.architectures import SUPPORTED, architecture
from rayrank.models.attention.padded import PaddedMasks, additive
from rayrank.models.batches import PaddedBatch
from rayrank.models.reranker import Reranker, relevance_score

INPUTS, OUTPUT = list(PaddedBatch._fields), "scores"
OPSET = 17
"""The first ONNX opset in which layer normalization is one node."""

ONNX_ATTENTION = "rayrank_onnx"
"""The name of the attention function for tracing in transformers' registry."""


def onnx_graph(model: Reranker) -> onnx.ModelProto:
    """Return the graph that computes the model's scores of a padded batch."""
    base = model.encoder.base
    if architecture(base.config).mask == "backend" and not base._supports_attention_backend:
        raise ConfigError(
            f"scorer.backend=onnx-int8 cannot be used: the attention of {type(base).__name__} cannot be replaced; "
            f"set scorer.backend=torch, or use an encoder such as {SUPPORTED}."
        )
    example = torch.ones((2, 8), dtype=torch.int64)
    sizes = {name: {0: "pairs", 1: "length"} for name in INPUTS}
    with temporary_folder() as folder, _traceable(model), torch.no_grad():
        file = folder / "traced.onnx"
        torch.onnx.export(
            _Scores(model).eval(), (example,) * len(INPUTS), file, input_names=INPUTS, output_names=[OUTPUT],
            dynamic_axes={**sizes, OUTPUT: {0: "pairs"}}, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
        return onnx.load(file)


def int8(graph: onnx.ModelProto) -> bytes:
    """Return the bytes of the graph with int8 weight matrices, one scale per column."""
    # The head stays float32: it costs no time, and an int8 head would give passages equal scores. The quantizer turns
    # its Gemm node into a MatMul of this name.
    heads = [f"{node.name}_MatMul" for node in graph.graph.node if node.op_type == "Gemm"]
    with temporary_folder() as folder, _silent():
        file = folder / "int8.onnx"
        quantize_dynamic(
            graph, file, op_types_to_quantize=["MatMul"], nodes_to_exclude=heads, per_channel=True,
            reduce_range=_int8_products_overflow(), weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )  # fmt: skip
        return file.read_bytes()


def _int8_products_overflow() -> bool:
    """Return whether this CPU sums int8 products in 16 bits, which can overflow unless weights have only 7 bits."""
    cpu = torch.cpu.get_capabilities()
    return cpu["architecture"] == "x86_64" and not (cpu.get("avx512_vnni") or cpu.get("avx_vnni"))


class _Scores(nn.Module):
    """A re-ranker that takes the tensors of a batch as positional arguments, as tracing requires."""

    def __init__(self, model: Reranker) -> None:
        super().__init__()
        self._model = model

    def forward(self, *tensors: Tensor) -> Tensor:
        return relevance_score(self._model(PaddedBatch(*tensors)))


@contextmanager
def _traceable(model: Reranker) -> Iterator[None]:
    """Switch the model to the attention function for tracing, on the CPU in eval mode, and restore it afterwards."""
    base, was_training = model.encoder.base, model.training
    before, device = base.config._attn_implementation, next(model.parameters()).device
    if architecture(base.config).mask == "backend":
        base.set_attn_implementation(ONNX_ATTENTION)
    model.eval().cpu()
    try:
        with _silent():
            yield
    finally:
        base.set_attn_implementation(before)
        model.train(was_training).to(device)


@contextmanager
def _silent() -> Iterator[None]:
    """Silence warnings and log messages, such as the deprecation warnings of torch and ONNX Runtime."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class _Attention(torch.autograd.Function):
    """Attention over (batch, length, hidden) tensors with an additive mask."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int, scale: float) -> Tensor:
        """Compute the attention output; tracing runs this once."""
        query, key, value = (
            tensor.reshape(*tensor.shape[:2], heads, -1).transpose(1, 2) for tensor in (query, key, value)
        )
        found = scaled_dot_product_attention(query, key, value, mask, scale=scale)
        return found.transpose(1, 2).flatten(2)

    @staticmethod
    def symbolic(g: Any, query: Any, key: Any, value: Any, mask: Any, heads: int, scale: float) -> Any:
        """Return the node for the graph."""
        absent = g.op("prim::Constant")
        absent.setType(torch._C.OptionalType.ofTensor())
        found = g.op(
            "com.microsoft::MultiHeadAttention", query, key, value, absent, absent, mask, num_heads_i=heads,
            scale_f=scale,
        )  # fmt: skip
        return found.setType(query.type())


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor,
    layer_masks: PaddedMasks | None = None, scaling: float | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    if layer_masks is not None:
        # The node needs one mask row per query, even if all rows are equal.
        attention_mask = layer_masks.for_layer(module.layer_index, query.dtype)  # type: ignore[arg-type]
        attention_mask = attention_mask.expand(-1, -1, query.shape[2], -1)
    heads, size = int(query.shape[1]), int(query.shape[3])
    flat = (tensor.transpose(1, 2).flatten(2) for tensor in (query, key, value))
    states: Tensor = _Attention.apply(*flat, additive(attention_mask), heads, scaling or size**-0.5)  # type: ignore[no-untyped-call]
    return states, None


def _padding_mask(attention_mask: Tensor, **options: Any) -> Tensor:
    """Return the mask of plain attention; transformers' function returns None if the example has no padding."""
    return attention_mask[:, None, None, :].expand(-1, -1, attention_mask.shape[1], -1)


AttentionInterface.register(ONNX_ATTENTION, _attend)
AttentionMaskInterface.register(ONNX_ATTENTION, _padding_mask)
