"""Vectors of the passages and queries, by the encoder that `dense.encoder` names."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.embedding import embed


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the vectors' artifact."""
    return embed("embeddings", None, config, store)
