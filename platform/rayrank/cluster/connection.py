"""The Ray cluster that stages work on: joined or started when first needed, so that mistakes in settings show at once.

Ray is imported inside functions, because importing it takes seconds and reading settings does not need it.
"""

import logging
import os
import socket
from typing import Any

from rayrank.cluster.fork_server import runtime_env, start_early
from rayrank.cluster.gpus import hidden_without_reservation
from rayrank.core.errors import ConfigError
from rayrank.core.progress import say
from rayrank.core.resources_config import ResourcesConfig

ATTEMPTS = 3
"""How often a start of Ray is tried; the second is faster, since its files lie in memory then."""


def start_ray() -> None:
    """Join the cluster a submitted job runs in, or start one inside this process."""
    import ray

    if ray.is_initialized():
        return
    if not os.environ.get("RAY_ADDRESS"):
        say("starting Ray on this machine")
        start_early()
    environment = hidden_without_reservation(runtime_env())
    connect(dashboard=False, log_to_driver=False, logging_level=logging.WARNING, runtime_env=environment)
    ray.data.DataContext.get_current().enable_progress_bars = False
    for name in ("ray", "ray.data", "ray.serve", "ray.train", "ray.tune"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True


def connect(*, dashboard: bool | None = None, **options: Any) -> None:
    """Join the cluster that RAY_ADDRESS names, or start Ray on this machine; `dashboard` is for a Ray started here."""
    if address := os.environ.get("RAY_ADDRESS"):
        _join(address, options)
        return
    try:
        start_here(include_dashboard=dashboard, **options)
    except Exception as error:  # Ray raises a bare Exception if its processes do not start in time
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"Ray cannot be started on this machine: {reason}; try again when the machine is less busy, or name a "
            f"running cluster in RAY_ADDRESS."
        ) from error


def start_here(**options: Any) -> None:
    """Start Ray on this machine; again if the machine was too busy, because Ray gives its own processes 15 seconds."""
    import ray

    for left in reversed(range(ATTEMPTS)):
        try:
            ray.init(address="local", **options)
            return
        except Exception as error:  # Ray raises a bare Exception
            if not left or "timed out" not in str(error):
                raise
            say("Ray did not start in time; trying again")


def _join(address: str, options: dict[str, Any]) -> None:
    import ray

    host, _, port = address.rpartition(":")
    try:
        if port.isdigit() and "/" not in host:
            # Ray itself would retry an unreachable node for a quarter of an hour without a message.
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address=address, **options)
    except (OSError, RuntimeError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"RAY_ADDRESS={address} cannot be joined: {reason}; start that cluster, or unset RAY_ADDRESS to work here."
        ) from None


def threads_on_a_node(wanted: int | None, key: str) -> int:
    """Return one worker's threads, by default all cores of a node; Ray would wait forever for more than a node has."""
    most = max(node_cpus())
    if wanted is None or wanted <= most:
        return wanted or most
    if not os.environ.get("RAY_ADDRESS"):
        raise ConfigError(
            f"{key}={wanted} cannot be used: this machine has {most} cores; lower it with --set {key}=..."
        )
    say(f"no node has the {wanted} cores that {key} asks for; waiting for the cluster to start one")
    return wanted


def cluster_cpus() -> int:
    """Return how many cores the cluster has now."""
    return max(1, sum(node_cpus()))


def node_cpus() -> list[int]:
    """Return the cores of every live node that has any."""
    return [cpus for cpus in (int(node.get("CPU", 0)) for node in _nodes({})) if cpus] or [1]


def model_nodes(resources: ResourcesConfig) -> list[dict[str, float]]:
    """Return the resources of every live node that may train, score and encode: those with `resources.labels`."""
    found = _nodes(resources.label_selector())
    if not found and (resources.train_gpus is None or not os.environ.get("RAY_ADDRESS")):
        raise ConfigError(
            f"resources.labels={list(resources.labels)} cannot be used: no node has these labels; start one, or if the "
            f"cluster will start one by itself, set resources.train_gpus, train_workers and score_actors."
        )
    return found


def _nodes(selector: dict[str, str]) -> list[dict[str, float]]:
    import ray

    alive = (node for node in ray.nodes() if node["Alive"])  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in alive if _has_labels(node["Labels"], selector)]


def _has_labels(labels: dict[str, str], selector: dict[str, str]) -> bool:
    """Return whether a node's labels satisfy a selector, as Ray decides it."""
    for key, wanted in selector.items():
        values = wanted.removeprefix("!").removeprefix("in(").removesuffix(")").replace(" ", "").split(",")
        if (labels.get(key) in values) == wanted.startswith("!"):
            return False
    return True
