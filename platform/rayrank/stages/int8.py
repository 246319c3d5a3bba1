"""The int8 form of a trained model for export: made, and let out only if it ranks dev as the model itself does."""

from typing import NamedTuple

from rayrank.artifacts import Store
from rayrank.config import RunConfig
from rayrank.errors import ConfigError
from rayrank.modeling.export import INT8
from rayrank.modeling.onnx_graph import int8, onnx_graph
from rayrank.modeling.onnx_scorer import OnnxScorer
from rayrank.modeling.reranker import Reranker
from rayrank.modeling.scorer import Scorer
from rayrank.training.data import hold_out, read_candidates
from rayrank.training.phases import DEV_METRIC, dev_metric
from rayrank.training.setups import inputs_of

MOST_LOST = 0.005
"""Of the dev metric; more than the spread between two trainings would be noticed."""


class Quantised(NamedTuple):
    """A graph of eight bits, and what it was measured with."""

    graph: bytes
    small: float
    full: float
    num_queries: int

    def figures(self) -> dict[str, float]:
        """Return what was measured."""
        return {"int8": self.small, "torch": self.full, "num_queries": self.num_queries}

    def finding(self) -> str:
        """Return the figures as a sentence."""
        return (
            f"{INT8} is for CPUs: {DEV_METRIC} {self.small:.4f} on {self.num_queries} dev queries, {self.full:.4f} "
            f"without it"
        )


def quantised(model: Reranker, config: RunConfig, store: Store) -> Quantised:
    """Return the model's graph of eight bits; refuse one that loses too much on at most training.dev_queries."""
    candidates = store.require("candidates", config)
    splits = {split: read_candidates(candidates, split) for split in ("train", "dev")}
    inputs = inputs_of(config, store, splits)
    dev = hold_out(inputs.data.splits, config.training.dev_queries)["dev"]
    graph = int8(onnx_graph(model))
    full, small = (
        dev_metric(inputs.data, dev, scorer)
        for scorer in (Scorer(model, inputs.texts), OnnxScorer(graph, inputs.texts))
    )
    check_loss(full, small, len(dev.queries))
    return Quantised(graph, small, full, len(dev.queries))


def check_loss(full: float, small: float, num_queries: int) -> None:
    """Refuse a model of eight bits that is worse than the full one."""
    if full - small > MOST_LOST:
        raise ConfigError(
            f"scorer.backend=onnx-int8 cannot be used: {DEV_METRIC} on {num_queries} dev queries falls from "
            f"{full:.4f} to {small:.4f} with weights of eight bits, and at most {MOST_LOST} may be lost; set "
            f"scorer.backend=torch."
        )
