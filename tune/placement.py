"""How many trials the cluster can train at once; an error if it cannot train a single one."""

import math
from collections.abc import Mapping, Sequence

import ray

from rayrank.core.config import ResourcesConfig
from rayrank.core.errors import ConfigError
from rayrank.core.progress import say
from rayrank.training.worker_size import scale


def trial_resources(resources: ResourcesConfig) -> ResourcesConfig:
    """Return the resources of a trial: one worker by default, because a sweep parallelises over trials."""
    return resources.model_copy(update={"train_workers": resources.train_workers or 1})


def num_parallel_trials(resources: ResourcesConfig) -> int:
    """Return how many trials the cluster can train at once; raises ConfigError if it cannot train one."""
    scaling = scale(resources)
    size: Mapping[str, float] = scaling.resources_per_worker  # type: ignore[assignment]
    workers = int(scaling.num_workers)  # type: ignore[arg-type]
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    found = num_workers_that_fit(nodes, size) // workers
    if not found:
        raise ConfigError(
            f"A trial of resources.train_workers={workers} with {size['CPU']:g} cores (resources.train_cpus) and "
            f"{size.get('GPU', 0):g} GPUs (resources.train_gpus) each does not fit on the cluster: lower these "
            f"settings, or start more nodes first."
        )
    free = ray.available_resources()  # type: ignore[no-untyped-call]
    for name, wanted in size.items():
        if (there := free.get(name, 0)) < wanted * workers:
            say(f"a trial needs {wanted * workers:g} {name}, but only {there:g} are free: trials wait")
    return found


def num_workers_that_fit(nodes: Sequence[Mapping[str, float]], size: Mapping[str, float]) -> int:
    """Return how many workers of a size fit on the nodes; a worker's fraction of a GPU comes from a single GPU."""
    return sum(_workers_on(node, size["CPU"], size.get("GPU", 0)) for node in nodes)


def _workers_on(node: Mapping[str, float], cpus: float, gpus: float) -> int:
    by_cores = int(node.get("CPU", 0) // cpus)
    if not gpus:
        return by_cores
    return min(by_cores, int(node.get("GPU", 0)) * math.floor(1 / gpus + 1e-9))
