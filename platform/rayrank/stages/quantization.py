"""A trained model in eight bits for export: let out only if it ranks dev as the model itself does."""

from copy import deepcopy
from typing import NamedTuple

import torch

from rayrank.bundle.export import INT8
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.scorer import Scorer, halve, quarter
from rayrank.models.reranker import Reranker
from rayrank.training.data import hold_out, inputs_of, read_candidates
from rayrank.training.phases.fine_tuning import DEV_METRIC, dev_metric

MOST_LOST = 0.005
"""Of the dev metric; more than the spread between two trainings would be noticed."""


class Quantised(NamedTuple):
    """What eight bits were measured with, and the graph of them that a folder takes along."""

    backend: str
    graph: bytes | None
    small: float
    full: float
    num_queries: int

    def figures(self) -> dict[str, str | float]:
        """Return what was measured."""
        return {"backend": self.backend, "small": self.small, "torch": self.full, "num_queries": self.num_queries}

    def finding(self) -> str:
        """Return the figures as a sentence."""
        name, where = (INT8, "CPUs") if self.graph else (self.backend, "GPUs")
        who = "`load` and the endpoint" if self.graph else "the endpoint"
        return (
            f"{name} is for {where}: {DEV_METRIC} {self.small:.4f} on {self.num_queries} dev queries, {self.full:.4f} "
            f"without it; {who} can be asked for it with backend={self.backend}"
        )


def quantised(model: Reranker, config: PipelineConfig, store: Store) -> Quantised:
    """Return the model in eight bits; refuse one that loses too much on at most training.dev_queries."""
    candidates, backend = store.require("candidates", config), config.scorer.backend
    graph = int8(onnx_graph(model)) if backend == "onnx-int8" else None
    full, small = (model, model) if graph else _of_floats(model)
    splits = {split: read_candidates(candidates, split) for split in ("train", "dev")}
    inputs = inputs_of(config, store, splits)
    dev = hold_out(inputs.data.splits, config.training.dev_queries)["dev"]
    scorers = Scorer(full, inputs.texts), OnnxScorer(graph, inputs.texts) if graph else Scorer(small, inputs.texts)
    before, after = (dev_metric(inputs.data, dev, scorer) for scorer in scorers)
    check_loss(backend, before, after, len(dev.queries))
    return Quantised(backend, graph, after, before, len(dev.queries))


def _of_floats(model: Reranker) -> tuple[Reranker, Reranker]:
    """Return the model on a GPU as it scores there, and in floats of eight bits."""
    full, small = (deepcopy(model).to("cuda" if torch.cuda.is_available() else "cpu") for _ in range(2))
    quarter(small)
    halve(full)
    return full, small


def check_loss(backend: str, full: float, small: float, num_queries: int) -> None:
    """Refuse a model of eight bits that is worse than the full one."""
    if full - small > MOST_LOST:
        raise ConfigError(
            f"scorer.backend={backend} cannot be used: {DEV_METRIC} on {num_queries} dev queries falls from "
            f"{full:.4f} to {small:.4f} with weights of eight bits, and at most {MOST_LOST} may be lost; set "
            f"scorer.backend=torch."
        )
