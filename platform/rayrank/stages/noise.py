"""Noise: the pointwise model's score of every training candidate; the threshold waits until lists are built."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.scoring import score


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the scores: train/part-*.parquet, rank as the first stage gave it."""
    return score("noise", "pointwise", ["train"], config, store)
