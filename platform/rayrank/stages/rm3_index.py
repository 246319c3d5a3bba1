"""Index of the passages with document vectors, for RM3."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.index import build


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the index artifact."""
    return build("rm3_index", "corpus", config, store)
