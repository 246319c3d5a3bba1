"""Listwise: whole lists against each other, without the noise the pointwise model found."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.training import train
from rayrank.training import setups
from rayrank.training.ray_train import Report


def run(config: PipelineConfig, store: Store, report: Report | None = None) -> Artifact:
    """Return the listwise artifact: model/, log.jsonl and tensorboard/; `report` may stop it early."""
    return train("listwise", config.listwise, setups.listwise, config, store, report=report)
