"""Listwise: a model trained on lists of positives and negatives, without candidates that the noise filter removes."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.training import train
from rayrank.training.phases import listwise
from rayrank.training.ray_train import Report


def run(config: PipelineConfig, store: Store, report: Report | None = None) -> Artifact:
    """Return the listwise artifact: model/, log.jsonl and tensorboard/; `report` may stop the training early."""
    return train(listwise, config, store, report)
