"""First stages on storage, as a corpus stage and searches would have written them."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS

Run = Mapping[str, Mapping[str, float]]
"""The scores of passages by query."""


def corpus(
    store: Store, config: PipelineConfig, splits: Mapping[str, Sequence[str]], relevant: Mapping[str, str]
) -> None:
    """Write the queries of each split, their judgments, and passages p0 to p99."""
    artifact = store.artifact("corpus", config)
    queries = [(query, split, f"text of {query}") for split, names in splits.items() for query in names]
    columns = dict(zip(("query_id", "split", "text"), map(list, zip(*queries, strict=True)), strict=True))
    artifact.write_table("queries.parquet", pa.table(columns))
    judged = [(query, relevant[query], 1, split) for query, split, _ in queries if query in relevant]
    rows = [dict(zip(JUDGMENTS.names, row, strict=True)) for row in judged]
    artifact.write_table("judgments.parquet", pa.Table.from_pylist(rows, schema=JUDGMENTS))
    artifact.write_table("passages/part-0.parquet", pa.table({"passage_id": [f"p{number}" for number in range(100)]}))
    counts = {
        split: {"num_queries": len(names), "num_judgments": sum(name in relevant for name in names)}
        for split, names in splits.items()
    }
    store.finish(artifact, config, time.monotonic(), {"splits": counts, "shards": ["passages/part-0.parquet"]})


def table(run: Run) -> pa.Table:
    """Return a run's rows, best first within each query."""
    rows = [
        {"query_id": query, "passage_id": passage, "rank": rank, "score": score}
        for query, scores in run.items()
        for rank, (passage, score) in enumerate(sorted(scores.items(), key=lambda pair: -pair[1]), start=1)
    ]
    return pa.Table.from_pylist(rows, schema=CANDIDATES)


def finished(store: Store, config: PipelineConfig, node: str, files: Mapping[str, Run]) -> Artifact:
    """Write a run's files."""
    artifact = store.artifact(node, config)
    for name, run in files.items():
        artifact.write_table(f"{name}.parquet", table(run))
    return store.finish(artifact, config, time.monotonic(), {}, node)


def storage(root: Path, config: PipelineConfig, splits: Mapping[str, Sequence[str]], **relevant: str) -> Store:
    store = Store(str(root))
    corpus(store, config, splits, relevant)
    return store


def read(artifact: Artifact, split: str) -> dict[str, dict[str, float]]:
    """Return a made run's scores, passages in the stored order; its ranks must be 1, 2, ..."""
    found: dict[str, dict[str, float]] = {}
    for name in artifact.names(split):
        for row in artifact.read_table(name).to_pylist():
            scores = found.setdefault(row["query_id"], {})
            scores[row["passage_id"]] = row["score"]
            assert row["rank"] == len(scores)
    return found
