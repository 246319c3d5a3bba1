"""How busy the cluster's GPUs are while trials run: whether a card has room for more of them."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

COMMAND = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
"""Says of each GPU in which share of the last second, in percent, anything was computed."""

PERIOD = 1.0
"""Seconds between two looks."""


class Busy(NamedTuple):
    """What looks at GPUs found: how many there were, and how many of them were busy."""

    busy: float = 0.0
    looks: int = 0

    def and_then(self, other: "Busy") -> "Busy":
        """Return both together."""
        return Busy(self.busy + other.busy, self.looks + other.looks)


@contextmanager
def watched() -> Iterator[Callable[[], Busy]]:
    """Watch the GPUs of all nodes that have any; yields what returns what was seen up to now."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]  # type: ignore[no-untyped-call]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    watches: list[Any] = [
        ray.remote(_Watch).options(num_cpus=0, scheduling_strategy=place).remote() for place in places
    ]

    def seen() -> Busy:
        total = Busy()
        for watch in watches:
            try:
                total = total.and_then(ray.get(watch.seen.remote()))
            except ray.exceptions.RayError:
                continue  # its node is gone, and what it had seen with it
        return total

    try:
        yield seen
    finally:
        for watch in watches:
            ray.kill(watch)


class _Watch:
    """Looks at the GPUs of one node; sees nothing where there is no nvidia-smi."""

    def __init__(self) -> None:
        self._seen = Busy()
        Thread(target=self._look, daemon=True).start()

    def seen(self) -> Busy:
        return self._seen

    def _look(self) -> None:
        while True:
            try:
                answer = subprocess.run(COMMAND, capture_output=True, text=True, check=True, timeout=30).stdout
            except FileNotFoundError:
                return
            except (OSError, subprocess.SubprocessError):
                answer = ""  # it may have more to say at the next look
            # A card that is shared out in parts says that it does not know.
            shares = [int(line) / 100 for line in answer.split("\n") if line.strip().isdigit()]
            self._seen = self._seen.and_then(Busy(sum(shares), len(shares)))
            time.sleep(PERIOD)
