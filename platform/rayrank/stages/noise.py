"""Noise: the pointwise model's score of every training candidate; the threshold waits until lists are built."""

from rayrank.artifacts import Artifact, Store
from rayrank.config import RunConfig
from rayrank.stages.scoring import score


def run(config: RunConfig, store: Store) -> Artifact:
    """Return the scores: train/part-*.parquet, rank as the first stage gave it."""
    return score("noise", "pointwise", ["train"], config, store)
