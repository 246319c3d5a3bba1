"""Work that falls into files: Ray Data streams the missing ones through a pool of actors."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import ray

from rayrank.artifacts import Artifact
from rayrank.errors import RayrankError
from rayrank.progress import say

FACTS = b"rayrank"
"""The Parquet footer entry in which a partition keeps what is to be known of it."""


class PartitionWorker:
    """Makes one partition a call; a subclass writes the file `name` and returns its facts."""

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        """Write the partition's file and return facts about it as plain JSON values."""
        raise NotImplementedError

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, list[str]]:
        """Take one item as Ray Data hands it over."""
        item = json.loads(batch["item"][0])
        try:
            return {"facts": [json.dumps(self.make(item))]}
        except RayrankError as error:
            # As data, so that a user's mistake does not look like a crash of the cluster.
            return {"facts": [json.dumps({"error": str(error), "kind": type(error).__name__})]}


def make_missing(
    artifact: Artifact, items: list[dict[str, Any]], worker: type[PartitionWorker], arguments: dict[str, Any],
    *, actors: int, cpus: int, label: str,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the facts of every item's partition, those found on storage first; only missing ones are made."""
    present = {name for folder in {_folder(item) for item in items} for name in artifact.names(folder)}
    found = [item for item in items if item["name"] in present]
    missing = [item for item in items if item["name"] not in present]
    if found:
        say(f"{label}: {len(found)} of {len(items)} partitions were there already and are reused")
    for item in found:
        yield read_facts(artifact, item["name"])
    if not missing:
        return
    data = ray.data.from_items([{"item": json.dumps(item)} for item in missing], override_num_blocks=len(missing))
    made = data.map_batches(
        worker,
        fn_constructor_kwargs=arguments,
        batch_size=1,
        num_cpus=cpus,
        compute=ray.data.ActorPoolStrategy(size=min(actors, len(missing))),
    )
    for row in made.iter_rows():
        facts = json.loads(row["facts"])
        if "error" in facts:
            raise _named(facts["kind"])(facts["error"])
        yield facts


def read_facts(artifact: Artifact, name: str) -> dict[str, Any]:
    """Return what a partition's footer says of it."""
    with artifact.open(name) as stream:
        return json.loads(pq.read_metadata(stream).metadata[FACTS])  # type: ignore[no-any-return]


def _folder(item: dict[str, Any]) -> str:
    return str(item["name"]).rsplit("/", 1)[0]


def _named(kind: str) -> type[RayrankError]:
    known = [RayrankError]
    for error in known:
        known.extend(error.__subclasses__())
    return next(error for error in known if error.__name__ == kind)


def cluster_cpus() -> int:
    """Return how many cores the cluster has now."""
    return max(1, sum(node_cpus()))


def node_cpus() -> list[int]:
    """Return the cores of every live node that has any."""
    nodes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    return [cpus for cpus in nodes if cpus] or [1]
