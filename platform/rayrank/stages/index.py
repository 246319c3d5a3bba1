"""Index: the corpus in Lucene."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ray

from rayrank.artifacts import Artifact, Store
from rayrank.config import IndexConfig, RunConfig
from rayrank.errors import RayrankError
from rayrank.progress import progress
from rayrank.retrieval.lucene import Indexer
from rayrank.stages.cluster import node_cpus, start_ray


def run(config: RunConfig, store: Store) -> Artifact:
    """Return the index artifact: lucene/."""
    if done := store.find("index", config):
        return done
    started = time.monotonic()
    corpus, artifact = store.require("corpus", config), store.artifact("index", config)
    total = corpus.manifest["num_passages"]
    start_ray()
    threads = config.resources.index_threads or max(node_cpus())
    indexed = 0
    with progress("index", total, "passages") as advance:
        task: Any = ray.remote(num_cpus=threads)(_build)
        for answer in task.remote(corpus, artifact, config.index, threads):
            count: int = ray.get(answer)
            indexed += count
            advance(count)
    if indexed != total:
        raise RayrankError(f"The index took {indexed} of {total} passages: delete {artifact.url} and run again.")
    return store.finish(artifact, config, started, {"num_passages": indexed})


def _build(corpus: Artifact, artifact: Artifact, config: IndexConfig, threads: int) -> Iterator[int]:
    """Yield how many passages were just added; in a worker, since a JVM stays in the process that started it."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "lucene")
        with Indexer(place, config, threads) as indexer:
            for name in corpus.names("passages"):
                for batch in corpus.batches(name, ["passage_id", "text"], rows=10_000):
                    indexer.add(batch.column(0).to_pylist(), batch.column(1).to_pylist())
                    yield len(batch)
        artifact.put_folder(place, "lucene")
