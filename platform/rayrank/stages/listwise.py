"""Listwise: whole lists against each other, without the noise the pointwise model found."""

from rayrank.artifacts import Artifact, Store
from rayrank.config import RunConfig
from rayrank.stages.training import train
from rayrank.training import setups


def run(config: RunConfig, store: Store) -> Artifact:
    """Return the listwise artifact: model/, log.jsonl and tensorboard/."""
    return train("listwise", config.listwise, setups.listwise, config, store)
