"""A re-ranker as an ONNX graph: ids in, scores out, with STRM's masks computed inside it and weights of eight bits.

The encoder is traced as it is; only its attention function is another, which becomes one node of ONNX Runtime's own.
"""

import logging
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from rayrank.core.errors import ConfigError
from rayrank.models.attention.layer_masks import LayerMasks
from rayrank.models.batches import PaddedBatch
from rayrank.models.reranker import Reranker, relevance_score

INPUTS, OUTPUT = list(PaddedBatch._fields), "scores"
OPSET = 17
"""The first in which a layer norm is one node."""

_TRACED = "rayrank_onnx"
"""The name under which transformers knows the attention that becomes one node."""


def onnx_graph(model: Reranker) -> onnx.ModelProto:
    """Return the graph that scores a padded batch as the model does."""
    base = model.encoder.base
    if not base._supports_attention_backend:
        raise ConfigError(
            f"scorer.backend=onnx-int8 cannot be used: {type(base).__name__} does not let its attention be replaced; "
            f"set scorer.backend=torch, or take an encoder such as BERT, RoBERTa or ELECTRA."
        )
    example = torch.ones((2, 8), dtype=torch.int64)
    sizes = {name: {0: "pairs", 1: "length"} for name in INPUTS}
    with tempfile.TemporaryDirectory() as folder, _traceable(model), torch.no_grad():
        file = Path(folder) / "traced.onnx"
        torch.onnx.export(
            _Scores(model).eval(), (example,) * len(INPUTS), file, input_names=INPUTS, output_names=[OUTPUT],
            dynamic_axes={**sizes, OUTPUT: {0: "pairs"}}, opset_version=OPSET, dynamo=False,
        )  # fmt: skip
        return onnx.load(file)


def int8(graph: onnx.ModelProto) -> bytes:
    """Return the graph as a file whose weight matrices have eight bits, a scale for each column."""
    # The head is a column or two: it takes no time, and passages would tie. This is its name once it is a MatMul.
    heads = [f"{node.name}_MatMul" for node in graph.graph.node if node.op_type == "Gemm"]
    with tempfile.TemporaryDirectory() as folder, _silent():
        file = Path(folder) / "int8.onnx"
        quantize_dynamic(
            graph, file, op_types_to_quantize=["MatMul"], nodes_to_exclude=heads, per_channel=True,
            reduce_range=_saturates(), weight_type=QuantType.QInt8,
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )  # fmt: skip
        return file.read_bytes()


def _saturates() -> bool:
    """Tell whether this machine adds up products of eight bits in sixteen, which weights of seven bits still fit."""
    there = torch.cpu.get_capabilities()
    return there["architecture"] == "x86_64" and not (there.get("avx512_vnni") or there.get("avx_vnni"))


class _Scores(nn.Module):
    """A re-ranker with the tensors of a batch as its arguments, as the tracer wants them."""

    def __init__(self, model: Reranker) -> None:
        super().__init__()
        self._model = model

    def forward(self, *tensors: Tensor) -> Tensor:
        return relevance_score(self._model(PaddedBatch(*tensors)))


@contextmanager
def _traceable(model: Reranker) -> Iterator[None]:
    """Exchange the model's attention, and put everything back as it was."""
    base, was_training = model.encoder.base, model.training
    before, device = base.config._attn_implementation, next(model.parameters()).device
    base.set_attn_implementation(_TRACED)
    model.eval().cpu()
    try:
        with _silent():
            yield
    finally:
        base.set_attn_implementation(before)
        model.train(was_training).to(device)


@contextmanager
def _silent() -> Iterator[None]:
    """Keep two libraries from speaking of their own future."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class _Attention(torch.autograd.Function):
    """Attention over (batch, length, hidden) tensors with a mask to be added."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, heads: int, scale: float) -> Tensor:
        """Compute it, as the tracer does once."""
        query, key, value = (
            tensor.reshape(*tensor.shape[:2], heads, -1).transpose(1, 2) for tensor in (query, key, value)
        )
        found = scaled_dot_product_attention(query, key, value, mask, scale=scale)
        return found.transpose(1, 2).flatten(2)

    @staticmethod
    def symbolic(g: Any, query: Any, key: Any, value: Any, mask: Any, heads: int, scale: float) -> Any:
        """Return the node that stands for it in the graph."""
        absent = g.op("prim::Constant")
        absent.setType(torch._C.OptionalType.ofTensor())
        found = g.op(
            "com.microsoft::MultiHeadAttention", query, key, value, absent, absent, mask, num_heads_i=heads,
            scale_f=scale,
        )  # fmt: skip
        return found.setType(query.type())


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor,
    layer_masks: LayerMasks | None = None, scaling: float | None = None, **options: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    if layer_masks is not None:
        # The node wants a row for each query, also where all have the same.
        attention_mask = layer_masks.of(module.place, query.dtype).expand(-1, -1, query.shape[2], -1)  # type: ignore[arg-type]
    if attention_mask.dtype == torch.bool:
        attention_mask = torch.where(attention_mask, 0.0, -torch.inf)
    heads, size = int(query.shape[1]), int(query.shape[3])
    flat = (tensor.transpose(1, 2).flatten(2) for tensor in (query, key, value))
    states: Tensor = _Attention.apply(*flat, attention_mask, heads, scaling or size**-0.5)  # type: ignore[no-untyped-call]
    return states, None


def _everything_present(attention_mask: Tensor, **options: Any) -> Tensor:
    """Return the mask of plain attention; transformers' own leaves it out where the traced example has no padding."""
    return attention_mask[:, None, None, :].expand(-1, -1, attention_mask.shape[1], -1)


AttentionInterface.register(_TRACED, _attend)
AttentionMaskInterface.register(_TRACED, _everything_present)
