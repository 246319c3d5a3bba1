"""Vectors of the passages and queries, by the sentence encoder that was trained on this dataset."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.embedding import embed


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the vectors' artifact."""
    return embed("trained_embeddings", "train_dense", config, store)
