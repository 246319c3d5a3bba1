"""Pointwise: a model that classifies one pair at a time as relevant or not, with the query's type."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.cut_passages import cut_passages, finding
from rayrank.stages.training import train
from rayrank.training.phases import pointwise


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the pointwise artifact: model/, log.jsonl and tensorboard/.

    It also says how much of the relevant passages is never read, because it is the first model that reads pairs.
    """
    return train(pointwise, config, store, notes=lambda: finding(cut_passages(config, store), config.input))
