"""The report's time and size with many queries, on a storage that is written for it.

    python -m benchmarks.report_size [--queries 100000] [--candidates 10] [--json FILE]

The storage has a corpus, BM25's run and DR-BERT's, and both evaluations; scores are random. Only the report is timed.
"""

import argparse
import json
import resource
import tempfile
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS, PASSAGES, QUERIES
from rayrank.jobs.report import write
from rayrank.stages import evaluate

RUNS = ("bm25", "drbert")
PASSAGES_EACH = 5
"""Queries for each passage of the corpus."""


def names(prefix: str, count: int) -> pa.Array:
    """Return ids with a fixed number of digits."""
    return pa.array([f"{prefix}{number:07d}" for number in range(count)])


def write_corpus(config: PipelineConfig, store: Store, num_queries: int) -> int:
    """Write the corpus, half of whose queries are dev queries; return the number of passages."""
    made, encoder = store.artifact("corpus", config), files("rayrank.data.sources.demo") / "encoder"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with made.create(f"tokenizer/{name}") as stream:
            stream.write((encoder / name).read_bytes())
    num_passages = num_queries // PASSAGES_EACH
    pieces = pa.array([[5, 6, 7]] * num_queries, QUERIES.field("piece_ids").type)
    text = pa.array(["who built the bridge of stone"] * num_queries)
    queries = {"query_id": names("q", num_queries), "split": ["test"] * num_queries, "query_type": [None] * num_queries}
    columns = {**queries, "text": text, "piece_ids": pieces}
    made.write_table("queries.parquet", pa.table([columns[name] for name in QUERIES.names], schema=QUERIES))
    columns = {"passage_id": names("p", num_passages), "text": text[:num_passages], "piece_ids": pieces[:num_passages]}
    made.write_table("passages/part-0.parquet", pa.table([columns[name] for name in PASSAGES.names], schema=PASSAGES))
    relevant = names("p", num_passages).take(np.arange(num_queries) % num_passages)
    columns = {"query_id": queries["query_id"], "passage_id": relevant, "relevance": [1] * num_queries,
               "split": queries["split"]}  # fmt: skip
    made.write_table("judgments.parquet", pa.table([columns[name] for name in JUDGMENTS.names], schema=JUDGMENTS))
    counts = {"test": {"num_queries": num_queries, "num_judgments": num_queries}}
    facts = {"num_passages": num_passages, "num_queries": num_queries, "num_judgments": num_queries, "splits": counts}
    store.finish(made, config, time.monotonic(), {**facts, "shards": ["passages/part-0.parquet"]}, "corpus")
    return num_passages


def write_run(name: str, config: PipelineConfig, store: Store, shape: tuple[int, int], num_passages: int) -> None:
    """Write a run that has the relevant passage among the candidates of most queries, on a random rank."""
    rng, (num_queries, depth) = np.random.default_rng(len(name)), shape
    offset = np.stack([rng.permutation(depth + 2)[:depth] for _ in range(num_queries)])
    passages = (np.arange(num_queries)[:, None] + offset) % num_passages
    ranks = np.tile(np.arange(1, depth + 1, dtype=np.int32), num_queries)
    columns: dict[str, Any] = {
        "query_id": names("q", num_queries).take(np.repeat(np.arange(num_queries), depth)),
        "passage_id": names("p", num_passages).take(passages.ravel()),
        "rank": ranks,
        "score": -ranks.astype(np.float32),
    }
    node = flow.run_node(name, config)
    made = store.artifact(node, config)
    made.write_table("test/part-0.parquet", pa.table([columns[each] for each in CANDIDATES.names], schema=CANDIDATES))
    store.finish(made, config, time.monotonic(), {"num_candidates": num_queries * depth}, node)
    evaluate.run(flow.evaluating(name, config), store)


def main() -> None:
    """Write the storage, time the report, and print its time and size."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--queries", type=int, default=100_000)
    options.add_argument("--candidates", type=int, default=10)
    options.add_argument("--json")
    arguments = options.parse_args()
    # Evaluations that are only read have few resamples here.
    config = build("demo", assignments=["evaluate.resamples=200"])
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        num_passages = write_corpus(config, store, arguments.queries)
        for name in RUNS:
            write_run(name, config, store, (arguments.queries, arguments.candidates), num_passages)
        started, cpu = time.monotonic(), time.process_time()
        asked = argparse.Namespace(preset="demo", dataset=None, storage=folder, config=None, set=[])
        page = Path(write(asked, config, store))
        found = {
            "queries": arguments.queries,
            "seconds": time.monotonic() - started,
            "cpu_seconds": time.process_time() - cpu,
            "page_bytes": page.stat().st_size,
            "folder_bytes": sum(each.stat().st_size for each in page.parent.iterdir()),
            "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        }
    print(json.dumps(found, indent=2))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
