"""Dense: a first stage that ranks passages by the dot product of their vector with the query's."""

import json
from typing import Any

import pyarrow as pa
from pydantic import Field

from rayrank.cluster.connection import start_ray
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing
from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.core.progress import progress
from rayrank.core.run_kinds import FirstStageSettings, RunInMaking, RunKind, depth_key, depth_of
from rayrank.runs.query_parts import query_parts


class DenseSettings(FirstStageSettings):
    """Which encoder's vectors are searched, and from which size of the corpus on the search is approximate."""

    trained: bool = Field(
        default=False, description="use the encoder that train_dense trained, not dense.encoder as is"
    )
    partition_queries: int = Field(
        default=4096, ge=1, description="queries in one file; exact search reads all vectors once for each file"
    )
    exact_up_to: int = Field(
        default=2_000_000,
        ge=0,
        description="largest number of passages for exact search; a larger corpus gets an approximate index",
    )
    recall: float = Field(
        default=0.97, gt=0, le=1, description="share of the exact top 100 that an approximate index must find"
    )


class Dense(RunKind):
    """The passages with the largest dot products, for every query."""

    Settings = DenseSettings

    def is_first_stage(self, settings: DenseSettings, config: PipelineConfig) -> bool:
        return True

    def inputs(self, settings: DenseSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus", _vectors_of(settings))

    def key(self, settings: DenseSettings, config: PipelineConfig) -> dict[str, Any]:
        return {**super().key(settings, config), **depth_key(settings, config)}

    def make(self, run: RunInMaking) -> dict[str, Any]:
        # Importing torch takes seconds, and the settings of runs are read before it is needed.
        from rayrank.retrieval.ann_index import make_index
        from rayrank.runs.scoring import actor_pool

        config, settings = run.config, run.settings
        vectors = run.store.require(_vectors_of(settings), config)
        approximate = vectors.manifest["num_passages"] > settings.exact_up_to
        index = make_index(run.artifact, vectors, settings.recall) if approximate else None
        items, skipped = query_parts(run.store.require("corpus", config), settings.partition_queries)
        for item in items:
            item["depth"] = depth_of(settings, config, item["split"])
        start_ray()
        pool = actor_pool(config.resources)
        arguments = {"artifact": run.artifact, "vectors": vectors, "index": index, "threads": pool.cpus}
        totals = {"num_queries": 0, "num_candidates": 0}
        with progress(run.name, sum(len(item["query_ids"]) for item in items), "queries") as advance:
            for facts in make_missing(
                run.artifact, items, PartitionSearcher, arguments, **pool._asdict(), label=run.name
            ):
                totals = {name: total + facts[name] for name, total in totals.items()}
                advance(facts["num_queries"])
        return {**totals, "num_unjudged_skipped": skipped, **({"ann": index} if index else {})}


def _vectors_of(settings: DenseSettings) -> str:
    return "trained_embeddings" if settings.trained else "embeddings"


class PartitionSearcher(PartitionWorker):
    """Runs the search of one partition of the queries per call."""

    def __init__(self, artifact: Artifact, vectors: Artifact, index: dict[str, Any] | None, threads: int) -> None:
        import torch

        from rayrank.retrieval.ann_index import open_index
        from rayrank.retrieval.dense import VectorIndex

        if not torch.cuda.is_available():
            torch.set_num_threads(threads)
        self._artifact = artifact
        self._index = VectorIndex(vectors, open_index(artifact, index) if index else None)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        query_ids = pa.array(item["query_ids"], pa.string())
        found = self._index.candidates(query_ids, self._index.query_vectors(query_ids), item["depth"])
        facts = {"num_queries": len(query_ids), "num_candidates": len(found)}
        self._artifact.write_table(item["name"], found.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts
