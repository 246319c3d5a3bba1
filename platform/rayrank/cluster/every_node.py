"""What every node of the cluster can do: tasks on all nodes at once, and whether all nodes share the storage.

Ray is imported inside functions, because importing it takes seconds and reading settings does not need it.
"""

import json
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import fsspec

from rayrank.cluster.connection import start_ray
from rayrank.core.errors import StorageError
from rayrank.core.leases import Holder

PROBE = ".nodes."
"""Prefix of the folders in which every node writes a file, to test whether all nodes share the storage."""

ANSWER_S = 120.0
"""A node that has not answered after this time counts as silent; its first worker imports torch before it answers."""


def live_nodes() -> dict[str, dict[str, Any]]:
    """Return what Ray says about every live node, by a name that people recognise."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    return {f"{node['NodeManagerHostname']} ({node['NodeID'][:6]})": node for node in nodes}


def on_every_node(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Return a function's result on every live node by the node's name, or the exception if the node gave none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    start_ray()
    # Ray repeats the task if its worker process is killed: only the loss of the node counts as no answer.
    task = ray.remote(num_cpus=0, max_retries=2)(function)
    asked = {}
    for name, node in live_nodes().items():
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[name] = task.options(scheduling_strategy=there).remote(*arguments)
    ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_S)
    return {name: _answer(reference) for name, reference in asked.items()}


def _answer(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference, timeout=0)
    except ray.exceptions.GetTimeoutError:
        return TimeoutError(f"it did not answer within {ANSWER_S:.0f} s")
    except Exception as error:  # whatever the task raised, or the loss of the node
        return error


def storage_faults(root: str) -> dict[str, str]:
    """Return, for every node that cannot read or write the storage, what is wrong there; empty if all nodes can."""
    filesystem, path = fsspec.url_to_fs(root)
    _remove_probes(filesystem, path)
    folder = f"{PROBE}{uuid.uuid4().hex}"
    filesystem.makedirs(f"{path}/{folder}", exist_ok=True)
    try:
        filesystem.pipe_file(f"{path}/{folder}/driver", Holder.of_this_process("asking every node").to_bytes())
        faults = {}
        for node, answer in on_every_node(_read_and_write, root, folder).items():
            if isinstance(answer, Exception) and node not in live_nodes():
                continue  # it was lost meanwhile
            if isinstance(answer, Exception):
                faults[node] = str(answer).strip().split("\n")[-1]
            elif answer["fault"]:
                faults[node] = answer["fault"]
            elif not filesystem.exists(f"{path}/{folder}/{answer['file']}"):
                faults[node] = "the job does not see the file that this node wrote there"
        return faults
    finally:
        with suppress(FileNotFoundError):
            filesystem.rm(f"{path}/{folder}", recursive=True)


def _remove_probes(filesystem: fsspec.AbstractFileSystem, path: str) -> None:
    """Remove the folders of killed processes: those of this machine at once, those of others after a day."""
    for folder in filesystem.glob(f"{path}/{PROBE}*"):
        with suppress(FileNotFoundError, ValueError, TypeError):  # it is just being written, or has just been removed
            holder = Holder(**json.loads(filesystem.cat_file(f"{folder}/driver")))
            alive = holder.is_alive()
            if alive is False or (alive is None and holder.age() > timedelta(days=1)):
                filesystem.rm(folder, recursive=True)


def _read_and_write(root: str, folder: str) -> dict[str, str]:
    """Look for the driver's file and write one beside it, on a node."""
    file = uuid.uuid4().hex
    try:
        filesystem, path = fsspec.url_to_fs(root)
        if not filesystem.exists(f"{path}/{folder}/driver"):
            return {"fault": "it does not see the files that the job writes there", "file": file}
        filesystem.pipe_file(f"{path}/{folder}/{file}", b"")
    except Exception as error:  # each file system raises its own, such as missing credentials
        return {"fault": getattr(error, "strerror", None) or str(error) or type(error).__name__, "file": file}
    return {"fault": "", "file": file}


@cache
def check_shared(root: str) -> None:
    """Raise if a node of the cluster that this process joined does not share the storage; asked once per process."""
    if not os.environ.get("RAY_ADDRESS"):
        return
    start_ray()
    if len(live_nodes()) < 2:
        return
    faults = storage_faults(root)
    if faults:
        node, fault = next(iter(faults.items()))
        raise StorageError(
            f"--storage {root} is not shared by all nodes: on {node}, {fault}; name a bucket or a network file system "
            f"that every node can write."
        )
