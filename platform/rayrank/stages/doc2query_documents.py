"""doc2query documents: the passages, each followed by the queries that doc2query's model wrote for it.

They are for the index alone: re-rankers read the passages of the corpus.
"""

import json
import time
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from rayrank.cluster.connection import start_ray
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing, slices
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.progress import progress
from rayrank.models.inference.prepare import prepare_device
from rayrank.models.query_writer import load_passage_queries
from rayrank.runs.scoring import actor_pool
from rayrank.training.draws import generator

STAGE = "doc2query_documents"

PASSAGES = 1000
"""Passages of one file; a restart writes queries again for the unfinished files."""

NUM_EXAMPLES = 3
"""How many passages the manifest shows as examples, and how many of the queries of each."""

DOCUMENTS = pa.schema([("passage_id", pa.string()), ("text", pa.large_string()), ("queries", pa.list_(pa.string()))])


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the documents artifact: documents/part-*.parquet with (passage_id, text, queries)."""
    if done := store.find(STAGE, config):
        return done
    started = time.monotonic()
    corpus, artifact = store.require("corpus", config), store.artifact(STAGE, config)
    store.require("train_doc2query", config)
    items = _items(corpus)
    start_ray()
    pool = actor_pool(config.resources)
    arguments = {"artifact": artifact, "config": config, "store": store, "threads": pool.cpus}
    totals, examples = {"num_passages": 0, "num_queries_written": 0, "write_seconds": 0.0}, list[str]()
    with progress(STAGE, corpus.manifest["num_passages"], "passages") as advance:
        for facts in make_missing(artifact, items, QueryAppender, arguments, **pool._asdict(), label=STAGE):
            totals = {name: totals[name] + facts[name] for name in totals}
            examples += facts["examples"]
            advance(facts["num_passages"])
    return store.finish(
        artifact,
        config,
        started,
        {
            "shards": [item["name"] for item in items],
            **totals,
            "gpus": pool.gpus,
            "findings": sorted(examples)[:NUM_EXAMPLES],
        },
    )


def _items(corpus: Artifact) -> list[dict[str, Any]]:
    """Return one item for each slice of a shard: its file, its rows, and the number that seeds its queries."""
    shards = corpus.manifest["shards"]
    starts = [(shard, start) for shard in shards for start, _ in slices(corpus, shard, PASSAGES)]
    return [
        {"name": f"documents/part-{number:06d}.parquet", "shard": shard, "start": start, "number": number}
        for number, (shard, start) in enumerate(starts)
    ]


class QueryAppender(PartitionWorker):
    """Holds the model and writes one slice of the passages, with queries, per call."""

    def __init__(self, artifact: Artifact, config: PipelineConfig, store: Store, threads: int) -> None:
        self._artifact, self._corpus = artifact, store.require("corpus", config)
        self._seed = config.training.seed
        device = prepare_device(threads, config.resources)
        self._write = load_passage_queries(store.require("train_doc2query", config), config.doc2query, device)
        # Cached, because the slices of a shard come one after another.
        self._read = lru_cache(maxsize=1)(lambda shard: self._corpus.read_table(shard, ["passage_id", "text"]))

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        started = time.monotonic()
        rows = self._read(item["shard"]).slice(item["start"], PASSAGES)
        passage_ids, texts = rows["passage_id"].to_pylist(), rows["text"].to_pylist()
        # The slice seeds its queries, so that a restart samples the same ones.
        seed = int(generator(self._seed, STAGE, 0, item["number"]).integers(1 << 62))
        queries = self._write(texts, seed)
        expanded = [with_queries(text, written) for text, written in zip(texts, queries, strict=True)]
        facts = {
            "num_passages": len(texts),
            "num_queries_written": sum(map(len, queries)),
            "write_seconds": time.monotonic() - started,
            "examples": _examples(passage_ids, queries) if item["number"] == 0 else [],
        }
        table = pa.table([passage_ids, expanded, queries], schema=DOCUMENTS)
        self._artifact.write_table(item["name"], table.replace_schema_metadata({FACTS: json.dumps(facts).encode()}))
        return facts


def with_queries(text: str, queries: list[str]) -> str:
    """Return a passage as it is indexed: its own text, then a line for each query."""
    return "\n".join([text, *queries])


def _examples(passage_ids: list[str], queries: list[list[str]]) -> list[str]:
    """Return sentences that show the queries of a few passages, far apart from each other."""
    rows = np.linspace(0, len(queries) - 1, min(NUM_EXAMPLES, len(queries)), dtype=int)
    return [
        f"doc2query wrote for {passage_ids[row]}: {'; '.join(queries[row][:NUM_EXAMPLES]) or 'nothing'}" for row in rows
    ]
