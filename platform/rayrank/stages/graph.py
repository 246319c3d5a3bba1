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
from rayrank.core.errors import RayrankError, StorageError, TrainingStopped
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
    """Make the wanted nodes and all their inputs on the cluster, at most `parallel` nodes at a time.

    If a training cannot succeed, what does not need it is made first, and then its TrainingStopped is raised.
    """
    if failed := make_possible(wanted, store, parallel):
        raise next(iter(failed.values()))


def make_possible(
    wanted: Sequence[tuple[str, PipelineConfig]], store: Store, parallel: int
) -> dict[Place, TrainingStopped]:  # fmt: skip
    """Make the wanted nodes as `make_all` does; return the error of each that needs a training that cannot succeed."""
    planned = [Wanted(node, config) for last, config in wanted for node in flow.plan(last, config)]
    with_places = [(each.place, each) for each in planned]
    everything = dict(with_places)
    # What most of the wanted nodes need comes first, so that they do not all wait for it in the end.
    places = [place for place, _ in Counter(place for place, _ in with_places).most_common()]
    missing = {place: everything[place] for place in places if not store.find(*everything[place])}
    say(f"{len(everything)} artifacts, of which {len(everything) - len(missing)} exist already")
    failed: dict[Place, TrainingStopped] = {}
    if not missing:
        return failed
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
                each = running.pop(task)
                if error := _failure(task):
                    failed[each.place] = error
                    say(f"without {each.node.removeprefix(flow.RUN)} and what needs it: {error}")
                    _give_up(missing, failed)
            names = sorted(each.node.removeprefix(flow.RUN) for each in running.values())
            advance(len(done), f"now {', '.join(names)}" if names else "")
    return failed


def _give_up(missing: dict[Place, Wanted], failed: dict[Place, TrainingStopped]) -> None:
    """Move the missing nodes that need a failed one to those that failed."""
    while True:
        needed = {
            place: [Wanted(name, each.config).place for name in flow.inputs(*each)] for place, each in missing.items()
        }
        blocked = {place: next((each for each in inputs if each in failed), None) for place, inputs in needed.items()}
        found = {place: failed[cause] for place, cause in blocked.items() if cause}
        if not found:
            return
        failed |= found
        for place in found:
            del missing[place]


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


def _failure(task: Any) -> TrainingStopped | None:
    """Return the error of a training that cannot succeed; raise every other error."""
    try:
        ray.get(task)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, TrainingStopped):
            return error.cause
        if isinstance(error.cause, RayrankError):
            raise error.cause from None
        raise
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.NodeDiedError):
        raise StorageError("A node of the cluster was lost too often: run the command again to continue.") from None
    return None
