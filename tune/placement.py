"""What the cluster has room for: how many trials at once, or one sentence instead of a sweep that waits forever."""

import math
from collections.abc import Mapping, Sequence

import ray

from rayrank.core.config import ResourcesConfig
from rayrank.core.errors import ConfigError
from rayrank.core.progress import say
from rayrank.training.ray_train import scale


def of_a_trial(resources: ResourcesConfig) -> ResourcesConfig:
    """Return the resources with one worker a trial where nothing else is said: trials are what runs in parallel."""
    return resources.model_copy(update={"train_workers": resources.train_workers or 1})


def places(resources: ResourcesConfig) -> int:
    """Return how many trials the cluster can run at once, at least one."""
    scaling = scale(resources)
    size: Mapping[str, float] = scaling.resources_per_worker  # type: ignore[assignment]
    workers = int(scaling.num_workers)  # type: ignore[arg-type]
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    found = rooms(nodes, size) // workers
    if not found:
        raise ConfigError(
            f"A trial of resources.train_workers={workers} with {size['CPU']:g} cores (resources.train_cpus) and "
            f"{size.get('GPU', 0):g} GPUs (resources.train_gpus) each is bigger than the cluster: ask for less, or "
            f"start more nodes first."
        )
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    for name, wanted in size.items():
        if (there := free.get(name, 0)) < wanted * workers:
            say(f"a trial needs {wanted * workers:g} {name}, and other work leaves {there:g}: trials wait for it")
    return found


def rooms(nodes: Sequence[Mapping[str, float]], size: Mapping[str, float]) -> int:
    """Return how many workers of a size fit; a share of a GPU is a share of one, never of two."""
    return sum(_room(node, size["CPU"], size.get("GPU", 0)) for node in nodes)


def _room(node: Mapping[str, float], cpus: float, gpus: float) -> int:
    by_cores = int(node.get("CPU", 0) // cpus)
    if not gpus:
        return by_cores
    return min(by_cores, int(node.get("GPU", 0)) * math.floor(1 / gpus + 1e-9))
