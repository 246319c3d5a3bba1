"""Train SDNet: layers that match the words of a query and a passage, on vectors of a frozen encoder."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.training import train
from rayrank.training.phases import sdnet


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the SDNet artifact."""
    return train(sdnet, config, store)
