"""Makes the artifacts of many configurations: each artifact once, as soon as its inputs exist."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import ray

from rayrank.cluster.connection import start_ray
from rayrank.cluster.every_node import check_shared
from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import RayrankError, StorageError
from rayrank.core.progress import progress, say
from rayrank.stages.make import make

Place = tuple[str, str]
"""The folder and the key of a result: runs of different names but equal settings share one."""


class Wanted(NamedTuple):
    """A node of the flow, and the configuration to make it with."""

    node: str
    config: PipelineConfig

    @property
    def place(self) -> Place:
        return flow.describe(self.node, self.config).folder, flow.key(self.node, self.config)


def make_all(wanted: Sequence[tuple[str, PipelineConfig]], store: Store, parallel: int) -> None:
    """Make the wanted nodes and all their inputs on the cluster, at most `parallel` nodes at a time."""
    planned = [Wanted(node, config) for last, config in wanted for node in flow.plan(last, config)]
    with_places = [(each.place, each) for each in planned]
    everything = dict(with_places)
    # What most of the wanted nodes need comes first, so that they do not all wait for it in the end.
    places = [place for place, _ in Counter(place for place, _ in with_places).most_common()]
    missing = {place: everything[place] for place in places if not store.find(*everything[place])}
    say(f"{len(everything)} artifacts, of which {len(everything) - len(missing)} exist already")
    if not missing:
        return
    start_ray()
    check_shared(store.root)
    running: dict[Any, Wanted] = {}
    with progress("artifacts", len(missing), "made") as advance:
        while missing or running:
            making = {each.place for each in running.values()}
            for place in _ready(missing, making)[: parallel - len(running)]:
                each = missing.pop(place)
                retried = _make.options(max_retries=each.config.resources.retries)
                running[retried.remote(*each, store)] = each
            done, _ = ray.wait(list(running), timeout=5.0)
            for task in done:
                running.pop(task)
                _raise_failure(task)
            names = sorted(each.node.removeprefix(flow.RUN) for each in running.values())
            advance(len(done), f"now {', '.join(names)}" if names else "")


def _ready(missing: dict[Place, Wanted], making: set[Place]) -> list[Place]:
    """Return the missing nodes whose inputs all exist, in the order given."""
    waiting = missing.keys() | making
    return [
        place
        for place, (node, config) in missing.items()
        if not any(Wanted(name, config).place in waiting for name in flow.inputs(node, config))
    ]


# This task reserves no core: it waits for the actors and workers that make the artifact. It is repeated if its machine
# is lost, and then continues what was begun; an error that it raises is not repeated.
@ray.remote(num_cpus=0)
def _make(node: str, config: PipelineConfig, store: Store) -> None:
    make(node, config, store)


def _raise_failure(task: Any) -> None:
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RayrankError):
            raise error.cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
        raise StorageError("A node of the cluster was lost too often: run the command again to continue.") from None
