"""How many workers a training has, and what each of them reserves."""

import os
from typing import NamedTuple

import ray.train

from rayrank.cluster.connection import model_nodes
from rayrank.core.config import ResourcesConfig
from rayrank.core.errors import ConfigError
from rayrank.core.progress import say


class TrainingSize(NamedTuple):
    """The workers of a training, what each of them reserves, and how many such workers the cluster has room for."""

    workers: int
    cpus: int
    gpus: float
    room: int


def training_size(resources: ResourcesConfig) -> TrainingSize:
    """Return the workers of a training: one per GPU if the cluster has any, else one with a node's cores."""
    nodes = model_nodes(resources)
    num_gpus = sum(node.get("GPU", 0) for node in nodes)
    gpus = resources.train_gpus if resources.train_gpus is not None else min(1.0, num_gpus)
    workers = resources.train_workers or (max(1, int(num_gpus)) if gpus else 1)
    cores = [int(node.get("CPU", 0)) for node in nodes]
    cpus = resources.train_cpus or (1 if gpus else max(1, min(max(cores, default=1), sum(cores) // workers)))
    room = [min(node.get("CPU", 0) // cpus, node.get("GPU", 0) / gpus if gpus else workers) for node in nodes]
    return TrainingSize(workers, cpus, gpus, sum(map(int, room)))


def scale(resources: ResourcesConfig) -> ray.train.ScalingConfig:
    """Return the workers of a training as Ray Train takes them; raises ConfigError if this machine is too small."""
    workers, cpus, gpus, room = training_size(resources)
    if room < workers:
        _report_no_room(workers, cpus, gpus)
    size = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    return ray.train.ScalingConfig(  # type: ignore[call-arg]  # mypy sees the class of Ray Train's first version
        num_workers=workers,
        use_gpu=gpus > 0,
        resources_per_worker=size,
        label_selector=resources.label_selector() or None,
    )


def _report_no_room(workers: int, cpus: int, gpus: float) -> None:
    """Raise ConfigError on a single machine; on a cluster, which may grow, only say that the training waits."""
    wanted = (
        f"resources.train_workers={workers} with {cpus} cores (resources.train_cpus) and {gpus:g} GPUs "
        f"(resources.train_gpus) each"
    )
    if not os.environ.get("RAY_ADDRESS"):
        raise ConfigError(f"{wanted} cannot be used: this machine has no room for them; ask for less.")
    say(f"the cluster has no room for {wanted}; waiting for it to grow")
