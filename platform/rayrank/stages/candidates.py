"""Candidates: for every query the passages worth re-ranking, as (query_id, passage_id, rank, score) rows."""

import json
import time
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import CandidatesConfig, IndexConfig, PipelineConfig
from rayrank.core.progress import progress
from rayrank.core.records import UNJUDGED
from rayrank.retrieval.lucene import Searcher
from rayrank.stages.cluster import node_cpus, start_ray, threads_on_a_node
from rayrank.stages.partitions import FACTS, PartitionWorker, make_missing
from rayrank.stages.provided import write_provided


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the candidates artifact: a folder of Parquet files for each split."""
    if done := store.find("candidates", config):
        return done
    started = time.monotonic()
    artifact, corpus = store.artifact("candidates", config), store.require("corpus", config)
    if config.candidates.first_stage == "provided":
        facts = write_provided(config, corpus, artifact)
    else:
        facts = _search(config, store.require("index", config), corpus, artifact)
    return store.finish(artifact, config, started, facts)


class PartitionSearcher(PartitionWorker):
    """Holds one JVM with the index open and answers a partition of queries a call."""

    def __init__(
        self, artifact: Artifact, index: Artifact, settings: IndexConfig, candidates: CandidatesConfig, threads: int
    ) -> None:
        self._artifact = artifact
        self._threads = threads
        self._search = Searcher(index.local(index.manifest["lucene"]), settings, candidates)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        found = self._search(item["query_ids"], item["texts"], self._threads)
        facts = {
            "num_queries": len(item["query_ids"]),
            "num_candidates": len(found),
            "num_without": len(item["query_ids"]) - pc.count_distinct(found["query_id"]).as_py(),
        }
        self._artifact.write_table(item["name"], found.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts


def _search(config: PipelineConfig, index: Artifact, corpus: Artifact, artifact: Artifact) -> dict[str, Any]:
    items, skipped = _partitions(corpus, config.candidates.partition_queries)
    start_ray()
    nodes = node_cpus()
    threads = threads_on_a_node(config.resources.search_threads, "resources.search_threads")
    totals = {"num_queries": 0, "num_candidates": 0, "num_without": 0}
    arguments = {
        "artifact": artifact,
        "index": index,
        "settings": config.index,
        "candidates": config.candidates,
        "threads": threads,
    }
    with progress("candidates", sum(len(item["query_ids"]) for item in items), "queries") as advance:
        for facts in make_missing(
            artifact,
            items,
            PartitionSearcher,
            arguments,
            actors=config.resources.search_actors or max(1, sum(cpus // threads for cpus in nodes)),
            cpus=threads,
            label="candidates",
        ):
            for name in totals:
                totals[name] += facts[name]
            advance(facts["num_queries"])
    return {**totals, "num_unjudged_skipped": skipped}


def _partitions(corpus: Artifact, size: int) -> tuple[list[dict[str, Any]], int]:
    """Return files of `size` queries, and how many were passed over: nobody judged them, and no split asks for them."""
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
