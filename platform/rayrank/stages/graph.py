"""Many configurations at once: every artifact they need is made once, as soon as its inputs are there."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import ray

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import RayrankError
from rayrank.core.progress import progress, say
from rayrank.stages.cluster import start_ray

Node = tuple[str, str]
"""A stage and the key of its result."""


def make_all(wanted: Sequence[tuple[str, PipelineConfig]], store: Store, parallel: int) -> None:
    """Make what is wanted and all that it needs, at most `parallel` stages at a time, on the cluster."""
    configs: dict[Node, PipelineConfig] = {}
    for last, config in wanted:
        for stage in flow.plan(last, config):
            configs.setdefault((stage, flow.key(stage, config)), config)
    missing = {node: config for node, config in configs.items() if not store.find(node[0], config)}
    say(f"{len(configs)} artifacts, of which {len(configs) - len(missing)} exist already")
    if not missing:
        return
    start_ray()
    running: dict[Any, Node] = {}
    with progress("artifacts", len(missing), "made") as advance:
        while missing or running:
            for node in _ready(missing, set(running.values()))[: parallel - len(running)]:
                running[_make.remote(node[0], missing.pop(node), store)] = node
            done, _ = ray.wait(list(running), timeout=5.0)
            for task in done:
                running.pop(task)
                _result(task)
            names = sorted(stage for stage, _ in running.values())
            advance(len(done), f"now {', '.join(names)}" if names else "")


def _ready(missing: dict[Node, PipelineConfig], running: set[Node]) -> list[Node]:
    """Return what nothing missing or in the making stands before, in the order it was asked for."""
    waiting = missing.keys() | running
    return [
        node
        for node, config in missing.items()
        if not any((name, flow.key(name, config)) in waiting for name in flow.inputs(node[0], config))
    ]


# No cores of its own: it waits for the actors and workers that the stage starts.
@ray.remote(num_cpus=0, max_retries=0)
def _make(stage: str, config: PipelineConfig, store: Store) -> None:
    import_module(f"rayrank.stages.{stage}").run(config, store)


def _result(task: Any) -> None:
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RayrankError):
            raise error.cause from None
        raise
