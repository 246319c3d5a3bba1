"""Work split into partitions, one Parquet file each: Ray Data streams the missing ones through a pool of actors."""

import json
from collections.abc import Iterator
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from rayrank.cluster.connection import cluster_cpus, start_ray
from rayrank.core.artifacts import Artifact
from rayrank.core.errors import RayrankError, StorageError
from rayrank.core.progress import say

FACTS = b"rayrank"
"""The Parquet footer entry for a partition's facts: its counts and other JSON values that the stage adds up."""


class PartitionWorker:
    """Makes one partition per call: a subclass writes the file that an item's `name` gives, and returns its facts."""

    calls = 1
    """How many threads call `make` at once: with two, one can read and write while the other uses the device."""

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        """Write the partition's file and return facts about it as plain JSON values."""
        raise NotImplementedError


class _Actor:
    """An actor of Ray Data; it creates its worker at the first item, to return errors of the constructor, too."""

    def __init__(self, worker: type[PartitionWorker], arguments: dict[str, Any]) -> None:
        self._start = partial(worker, **arguments)
        self._worker: PartitionWorker | None = None
        self._starting = Lock()

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        """Take one item as Ray Data hands it over."""
        item = json.loads(batch["item"][0])
        try:
            with self._starting:
                self._worker = self._worker or self._start()
            return {"facts": [json.dumps(self._worker.make(item))]}
        except RayrankError as error:
            # Returned as data, because Ray would report an exception as a crash of the actor.
            return {"facts": [json.dumps({"error": type(error).__name__, "arguments": error.args})]}


def slices(artifact: Artifact, file: str, size: int) -> list[tuple[int, int]]:
    """Return (start, number of rows) of the slices of a file that become one partition each."""
    num_rows = artifact.num_rows(file)
    return [(start, min(size, num_rows - start)) for start in range(0, num_rows, size)]


def make_missing(
    artifact: Artifact, items: list[dict[str, Any]], worker: type[PartitionWorker], arguments: dict[str, Any],
    *, actors: int | None, cpus: int, gpus: float = 0, label: str, labels: dict[str, str] | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the facts of every item's partition, those found on storage first; only missing partitions are made.

    `actors` is the size of the pool, by default one actor per core; its nodes have the `labels`.
    """
    present = _present(artifact, items)
    found = [item for item in items if item["name"] in present]
    missing = [item for item in items if item["name"] not in present]
    if found:
        say(f"{label}: {len(found)} of {len(items)} partitions exist already and are reused")
    for item in found:
        yield read_facts(artifact, item["name"])
    if not missing:
        return
    start_ray()
    for answer in _make(missing, worker, arguments, actors or cluster_cpus(), cpus, gpus, labels):
        facts = json.loads(answer)
        if "error" in facts:
            raise _error_class(facts["error"])(*facts["arguments"])
        yield facts
    lost = {item["name"] for item in items} - _present(artifact, items)
    if lost:
        raise StorageError(
            f"--storage {artifact.root} is not shared by all nodes: {len(lost)} files that workers wrote are not "
            f"there; use a bucket or a network file system."
        )


def _make(
    items: list[dict[str, Any]], worker: type[PartitionWorker], arguments: dict[str, Any], actors: int, cpus: int,
    gpus: float, labels: dict[str, str] | None,
) -> Iterator[str]:  # fmt: skip
    """Yield the facts of each item, as JSON, when an actor has made its partition."""
    # Importing Ray takes seconds, and reading settings does not need it.
    import ray

    data = ray.data.from_items([{"item": json.dumps(item)} for item in items], override_num_blocks=len(items))
    made = data.map_batches(
        _Actor,
        fn_constructor_args=(worker, arguments),
        batch_size=1,
        num_cpus=cpus,
        num_gpus=gpus,
        label_selector=labels or None,
        compute=ray.data.ActorPoolStrategy(
            size=min(actors, len(items)),
            max_concurrent_calls_per_actor=worker.calls,
            enable_true_multi_threading=worker.calls > 1,
        ),
    )
    return (row["facts"] for row in made.iter_rows())


def read_facts(artifact: Artifact, name: str) -> dict[str, Any]:
    """Return a partition's facts, from its Parquet footer."""
    return json.loads(artifact.metadata(name).metadata[FACTS])  # type: ignore[no-any-return]


def _present(artifact: Artifact, items: list[dict[str, Any]]) -> set[str]:
    folders = {str(item["name"]).rsplit("/", 1)[0] for item in items}
    return {name for folder in folders for name in artifact.names(folder)}


def _error_class(name: str) -> type[RayrankError]:
    known = [RayrankError]
    for error in known:
        known.extend(error.__subclasses__())
    return next(error for error in known if error.__name__ == name)
