"""Search: a first stage that asks a Lucene index for the passages of every query, ranked by BM25."""

import json
from typing import Any, Literal

import pyarrow.compute as pc
from pydantic import Field

from rayrank.cluster.connection import node_cpus, start_ray, threads_on_a_node
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing
from rayrank.core.artifacts import Artifact
from rayrank.core.config import IndexConfig, PipelineConfig
from rayrank.core.progress import progress
from rayrank.core.run_kinds import FirstStageSettings, RunInMaking, RunKind, depth_key, depth_of
from rayrank.retrieval.lucene import Bm25, Rm3, Searcher
from rayrank.runs.query_parts import query_parts

INDEXES = {"plain": "index", "deepct": "deepct_index", "doc2query": "doc2query_index"}
"""The stage that builds each index. Those of DeepCT and doc2query have the document vectors that RM3 needs."""


class SearchSettings(FirstStageSettings):
    """BM25's and RM3's parameters. Lucene applies them while it searches, so another k1 needs no new index."""

    index: Literal["plain", "deepct", "doc2query"] = Field(
        default="plain",
        description="plain: the passages; deepct: the passages' words, each repeated according to its DeepCT weight; "
        "doc2query: the passages with the queries that a model predicts for them",
    )
    k1: float = Field(default=0.9, ge=0)
    b: float = Field(default=0.4, ge=0, le=1)
    rm3: bool = Field(default=False, description="expand each query with words of the passages it finds first (RM3)")
    rm3_terms: int = Field(default=10, ge=1, description="words that a query is expanded with")
    rm3_passages: int = Field(default=10, ge=1, le=50, description="passages that these words are taken from")
    rm3_weight: float = Field(default=0.5, ge=0, le=1, description="weight of the original query")
    partition_queries: int = Field(
        default=1000, ge=1, description="queries in one file; a restart repeats only the unfinished files"
    )


class Search(RunKind):
    """The best passages of every query."""

    Settings = SearchSettings

    def is_first_stage(self, settings: SearchSettings, config: PipelineConfig) -> bool:
        return True

    def inputs(self, settings: SearchSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus", _index(settings))

    def key(self, settings: SearchSettings, config: PipelineConfig) -> dict[str, Any]:
        chosen = {**super().key(settings, config), **depth_key(settings, config)}
        # The index is an input, and RM3's settings matter only if it is used.
        return {
            name: value
            for name, value in chosen.items()
            if name != "index" and (settings.rm3 or not name.startswith("rm3"))
        }

    def make(self, run: RunInMaking) -> dict[str, Any]:
        config, settings = run.config, run.settings
        index = run.store.require(_index(settings), config)
        items, skipped = query_parts(run.store.require("corpus", config), settings.partition_queries)
        for item in items:
            item["depth"] = depth_of(settings, config, item["split"])
        start_ray()
        threads = threads_on_a_node(config.resources.search_threads, "resources.search_threads")
        actors = config.resources.search_actors or max(1, sum(cpus // threads for cpus in node_cpus()))
        rm3 = Rm3(settings.rm3_terms, settings.rm3_passages, settings.rm3_weight) if settings.rm3 else None
        ranking = Bm25(settings.k1, settings.b, depth_of(settings, config), rm3)
        arguments = {
            "artifact": run.artifact, "index": index, "analysis": config.index, "ranking": ranking, "threads": threads,
        }  # fmt: skip
        totals = {"num_queries": 0, "num_candidates": 0, "num_without_results": 0}
        with progress(run.name, sum(len(item["query_ids"]) for item in items), "queries") as advance:
            for facts in make_missing(
                run.artifact, items, PartitionSearcher, arguments, actors=actors, cpus=threads, label=run.name
            ):
                totals = {name: total + facts[name] for name, total in totals.items()}
                advance(facts["num_queries"])
        return {**totals, "num_unjudged_skipped": skipped}


def _index(settings: SearchSettings) -> str:
    """Return the stage that builds the index of a run."""
    return "rm3_index" if settings.rm3 and settings.index == "plain" else INDEXES[settings.index]


class PartitionSearcher(PartitionWorker):
    """Holds one JVM with the index open and answers one partition of queries per call."""

    def __init__(self, artifact: Artifact, index: Artifact, analysis: IndexConfig, ranking: Bm25, threads: int) -> None:
        self._artifact, self._threads = artifact, threads
        self._search = Searcher(index.local(index.manifest["lucene"]), analysis, ranking)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        found = self._search(item["query_ids"], item["texts"], self._threads, item["depth"])
        facts = {
            "num_queries": len(item["query_ids"]),
            "num_candidates": len(found),
            "num_without_results": len(item["query_ids"]) - pc.count_distinct(found["query_id"]).as_py(),
        }
        self._artifact.write_table(item["name"], found.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts
