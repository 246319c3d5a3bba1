"""Index of the passages with the queries that doc2query wrote for them."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.index import build


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the index artifact."""
    return build("doc2query_index", "doc2query_documents", config, store)
