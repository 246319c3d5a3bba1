"""Index of the passages with DeepCT's term frequencies."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.index import build


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the index artifact."""
    return build("deepct_index", "deepct_documents", config, store)
