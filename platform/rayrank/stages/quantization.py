"""Quantizing a trained model for export, to int8 for CPUs or fp8 for GPUs, if it ranks dev nearly as well."""

from copy import deepcopy
from typing import NamedTuple

import torch

from rayrank.bundle.export import INT8
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.measure.metrics import Measure
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.prepare import quantize_to_fp8, to_bfloat16
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import Reranker
from rayrank.training.data import inputs_of, read_candidates
from rayrank.training.phases.fine_tuning import dev_metric

MAX_DECREASE = 0.005
"""The largest decrease of the dev metric that is accepted, about the difference between two seeds."""


class Quantized(NamedTuple):
    """The dev metric of a quantized model and of the original, and the int8 graph to export."""

    backend: str
    graph: bytes | None
    """The ONNX graph with int8 weights; None for fp8, which is computed when a model is loaded."""
    quantized: float
    original: float
    num_queries: int
    metric: str

    def figures(self) -> dict[str, str | float]:
        """Return the measurement for the job's summary."""
        return {
            "backend": self.backend,
            "metric": self.metric,
            "quantized": self.quantized,
            "torch": self.original,
            "num_queries": self.num_queries,
        }

    def finding(self) -> str:
        """Return the measurement as a sentence."""
        name, where = (INT8, "CPUs") if self.graph else (self.backend, "GPUs")
        users = "`load` and the endpoint use" if self.graph else "the endpoint uses"
        return (
            f"{name} is for {where}: {self.metric} {self.quantized:.4f} on {self.num_queries} dev queries, "
            f"{self.original:.4f} without it; {users} it with backend={self.backend}"
        )


def quantize(model: Reranker, config: PipelineConfig, store: Store) -> Quantized:
    """Quantize the model for `scorer.backend`; raise ConfigError if the dev metric falls by more than MAX_DECREASE."""
    candidates, backend = store.require("candidates", config), config.scorer.backend
    graph = int8(onnx_graph(model)) if backend == "onnx-int8" else None
    original, quantized = (model, model) if graph else _bfloat16_and_fp8(model)
    inputs = inputs_of(config, store, {"dev": read_candidates(candidates, "dev")})
    dev = inputs.data.splits["dev"].sample(config.training.dev_queries)
    texts, measure = inputs.texts, Measure.of(config)
    scorers = Scorer(original, texts), OnnxScorer(graph, texts) if graph else Scorer(quantized, texts)
    before, after = (dev_metric(inputs.data, dev, inputs.scorer(scorer), measure) for scorer in scorers)
    check_decrease(backend, before, after, len(dev.queries), measure.name)
    return Quantized(backend, graph, after, before, len(dev.queries), measure.name)


def _bfloat16_and_fp8(model: Reranker) -> tuple[Reranker, Reranker]:
    """Return two copies of the model on a GPU, in bfloat16 and in fp8."""
    original, quantized = (deepcopy(model).to("cuda" if torch.cuda.is_available() else "cpu") for _ in range(2))
    quantize_to_fp8(quantized)
    to_bfloat16(original)
    return original, quantized


def check_decrease(backend: str, original: float, quantized: float, num_queries: int, metric: str) -> None:
    """Raise ConfigError if quantization lowers the dev metric by more than MAX_DECREASE."""
    if original - quantized > MAX_DECREASE:
        raise ConfigError(
            f"scorer.backend={backend} cannot be used: {metric} on {num_queries} dev queries falls from "
            f"{original:.4f} to {quantized:.4f} when the model is quantized, and may fall by at most {MAX_DECREASE}; "
            f"set scorer.backend=torch."
        )
