"""Search: a first stage that asks a Lucene index for the passages of every query, ranked by BM25."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from rayrank.cluster.connection import node_cpus, start_ray, threads_on_a_node
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing
from rayrank.core.artifacts import Artifact
from rayrank.core.config import IndexConfig, PipelineConfig
from rayrank.core.progress import progress
from rayrank.core.records import UNJUDGED
from rayrank.core.run_kinds import RunInMaking, RunKind, RunSettings
from rayrank.retrieval.lucene import Bm25, Searcher


class SearchSettings(RunSettings):
    """BM25's parameters. Lucene applies them while it searches, so that another k1 rebuilds no index."""

    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)
    partition_queries: int = Field(
        default=1000, ge=1, description="queries in one file; a restart searches again for the unfinished files"
    )


class Search(RunKind):
    """The top `candidates.depth` passages of every query."""

    Settings = SearchSettings
    is_first_stage = True

    def inputs(self, settings: SearchSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("index",)

    def key(self, settings: SearchSettings, config: PipelineConfig) -> dict[str, Any]:
        return {**super().key(settings, config), "depth": config.candidates.depth}

    def make(self, run: RunInMaking) -> dict[str, Any]:
        config, settings, index = run.config, run.settings, run.store.require("index", run.config)
        items, skipped = _partitions(run.store.require("corpus", config), settings.partition_queries)
        start_ray()
        threads = threads_on_a_node(config.resources.search_threads, "resources.search_threads")
        actors = config.resources.search_actors or max(1, sum(cpus // threads for cpus in node_cpus()))
        ranking = Bm25(settings.k1, settings.b, config.candidates.depth)
        arguments = {
            "artifact": run.artifact, "index": index, "analysis": config.index, "ranking": ranking, "threads": threads,
        }  # fmt: skip
        totals = {"num_queries": 0, "num_candidates": 0, "num_without": 0}
        with progress(run.name, sum(len(item["query_ids"]) for item in items), "queries") as advance:
            for facts in make_missing(
                run.artifact, items, PartitionSearcher, arguments, actors=actors, cpus=threads, label=run.name
            ):
                totals = {name: total + facts[name] for name, total in totals.items()}
                advance(facts["num_queries"])
        return {**totals, "num_unjudged_skipped": skipped}


class PartitionSearcher(PartitionWorker):
    """Holds one JVM with the index open and answers a partition of queries a call."""

    def __init__(self, artifact: Artifact, index: Artifact, analysis: IndexConfig, ranking: Bm25, threads: int) -> None:
        self._artifact, self._threads = artifact, threads
        self._search = Searcher(index.local(index.manifest["lucene"]), analysis, ranking)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        found = self._search(item["query_ids"], item["texts"], self._threads)
        facts = {
            "num_queries": len(item["query_ids"]),
            "num_candidates": len(found),
            "num_without": len(item["query_ids"]) - pc.count_distinct(found["query_id"]).as_py(),
        }
        self._artifact.write_table(item["name"], found.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts


def _partitions(corpus: Artifact, size: int) -> tuple[list[dict[str, Any]], int]:
    """Return files of `size` queries, and how many queries are left out: those without a judgment and a split."""
    queries = corpus.read_table("queries.parquet", ["query_id", "split", "text"])
    judged = corpus.read_table("judgments.parquet", ["query_id"])["query_id"]
    held_out = pc.invert(pc.is_in(queries["split"], value_set=pa.array(["train", UNJUDGED])))
    useful = pc.or_(held_out, pc.is_in(queries["query_id"], value_set=judged.combine_chunks()))
    skipped = len(queries)
    queries = queries.filter(useful)
    skipped -= len(queries)
    items: list[dict[str, Any]] = []
    for split in sorted(pc.unique(queries["split"]).to_pylist()):
        rows = queries.filter(pc.equal(queries["split"], split))
        for number, start in enumerate(range(0, len(rows), size)):
            part = rows.slice(start, size)
            items.append(
                {
                    "name": f"{split}/part-{number:05d}.parquet",
                    "query_ids": part["query_id"].to_pylist(),
                    "texts": part["text"].to_pylist(),
                }
            )
    return items, skipped
