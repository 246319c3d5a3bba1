"""Index: a Lucene index of the corpus."""

import time
import uuid
from collections.abc import Iterator
from typing import Any

import ray
from ray.exceptions import RayTaskError

from rayrank.cluster.connection import start_ray, threads_on_a_node
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import IndexConfig, PipelineConfig
from rayrank.core.copies import temporary_folder
from rayrank.core.drafts import remove_folders
from rayrank.core.errors import RayrankError, StorageError
from rayrank.core.progress import log, progress
from rayrank.retrieval.lucene import Indexer

PREFIX = "lucene-"
"""Prefix of the folders that hold an index."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the index of the corpus's passages: one folder, which its manifest names."""
    return build("index", "corpus", config, store, vectors=False)


def build(stage: str, documents: str, config: PipelineConfig, store: Store, vectors: bool = True) -> Artifact:
    """Return the index that `stage` makes of the texts of another stage, `documents`.

    The manifest of `documents` lists the files of texts as `shards`. RM3 needs document vectors (`vectors`), which make
    an index about four times as large.
    """
    if done := store.find(stage, config):
        return done
    started = time.monotonic()
    corpus, artifact = store.require(documents, config), store.artifact(stage, config)
    total = corpus.manifest["num_passages"]
    start_ray()
    threads = threads_on_a_node(config.resources.index_threads, "resources.index_threads")
    # Each attempt copies its index into a folder of its own; the manifest names the folder of the one that ended.
    remove_folders(*artifact.place, PREFIX, keep="")
    name, indexed = "", 0
    with progress(stage, total, "passages") as advance:
        task: Any = ray.remote(num_cpus=threads)(_build)
        for answer in task.remote(corpus, artifact, config.index, threads, vectors):
            count, name = _told(answer)
            indexed += count
            advance(count)
            if indexed == total:
                log.info("%s: merging segments and storing", stage)
    if not artifact.exists(name):
        raise StorageError(
            f"--storage {artifact.root} is not shared by all nodes: the index that a worker wrote is not there; "
            f"use a bucket or a network file system."
        )
    remove_folders(*artifact.place, PREFIX, keep=name)
    return store.finish(artifact, config, started, {"num_passages": indexed, "lucene": name})


def _told(answer: Any) -> tuple[int, str]:
    try:
        return ray.get(answer)  # type: ignore[no-any-return]
    except RayTaskError as error:
        if isinstance(error.cause, RayrankError):
            raise error.cause from None
        raise


def _build(
    corpus: Artifact, artifact: Artifact, config: IndexConfig, threads: int, vectors: bool
) -> Iterator[tuple[int, str]]:
    """Yield how many passages were just added, and at the end the name of the folder with the stored index.

    Runs in a worker, because a JVM stays in the process that started it. Ray runs it again if the worker dies.
    """
    with temporary_folder() as folder:
        place = str(folder / "lucene")
        with Indexer(place, config, threads, vectors) as indexer:
            for shard in corpus.manifest["shards"]:
                for batch in corpus.batches(shard, ["passage_id", "text"], rows=10_000):
                    indexer.add(batch.column(0).to_pylist(), batch.column(1).to_pylist())
                    yield len(batch), ""
        name = f"{PREFIX}{uuid.uuid4().hex[:8]}"
        artifact.put_folder(place, name)
        yield 0, name
