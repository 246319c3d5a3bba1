"""Pretrain: masked words and next sentences on the corpus, before any judgment is seen."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.training import train
from rayrank.training import setups


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the pretrain artifact: model/, log.jsonl and tensorboard/."""
    return train("pretrain", config.pretrain, setups.pretrain, config, store)
