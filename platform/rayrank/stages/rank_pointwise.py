"""Rank: the candidates of every held-out split under the pointwise model's score."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.scoring import held_out, score


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the run: a folder of Parquet files for each split."""
    return score("rank_pointwise", "pointwise", held_out(config, store), config, store)
