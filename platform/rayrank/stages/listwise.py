"""Listwise: whole lists against each other, without the noise the pointwise model found."""

from rayrank.artifacts import Artifact, Store
from rayrank.config import RunConfig
from rayrank.stages.training import train
from rayrank.training import setups
from rayrank.training.ray_train import Report


def run(config: RunConfig, store: Store, report: Report | None = None) -> Artifact:
    """Return the listwise artifact: model/, log.jsonl and tensorboard/; `report` may stop it early."""
    return train("listwise", config.listwise, setups.listwise, config, store, report=report)
