"""Pretrain: an encoder trained on the corpus alone, by masked language modelling and next-sentence prediction."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.training import train
from rayrank.training.phases import pretrain


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the pretrain artifact: model/, log.jsonl and tensorboard/."""
    return train(pretrain, config, store)
