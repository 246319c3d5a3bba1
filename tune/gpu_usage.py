"""Utilization of the cluster's GPUs during a sweep, which shows whether a GPU has room for more trials."""

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

COMMAND = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
"""Prints, for each GPU, the percentage of the last second in which a kernel was running."""

PERIOD = 1.0
"""Seconds between two samples."""


class GpuUsage(NamedTuple):
    """The number of samples, one per GPU and second, and the sum of their utilizations from 0 to 1."""

    busy: float = 0.0
    samples: int = 0

    def plus(self, other: "GpuUsage") -> "GpuUsage":
        """Return the usage of both."""
        return GpuUsage(self.busy + other.busy, self.samples + other.samples)


@contextmanager
def gpu_watch() -> Iterator[Callable[[], GpuUsage]]:
    """Sample the GPUs of all nodes; yields a function that returns the usage since the start."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"] and node["Resources"].get("GPU")]  # type: ignore[no-untyped-call]
    places = [NodeAffinitySchedulingStrategy(node, soft=False) for node in nodes]
    samplers: list[Any] = [
        ray.remote(_Sampler).options(num_cpus=0, scheduling_strategy=place).remote() for place in places
    ]

    def usage() -> GpuUsage:
        total = GpuUsage()
        for sampler in samplers:
            try:
                total = total.plus(ray.get(sampler.usage.remote()))
            except ray.exceptions.RayError:
                continue  # the node was lost, and its samples with it
        return total

    try:
        yield usage
    finally:
        for sampler in samplers:
            ray.kill(sampler)


class _Sampler:
    """Samples the GPUs of one node; without nvidia-smi it ends with no samples."""

    def __init__(self) -> None:
        self._usage = GpuUsage()
        Thread(target=self._sample, daemon=True).start()

    def usage(self) -> GpuUsage:
        return self._usage

    def _sample(self) -> None:
        while True:
            try:
                answer = subprocess.run(COMMAND, capture_output=True, text=True, check=True, timeout=30).stdout
            except FileNotFoundError:
                return
            except (OSError, subprocess.SubprocessError):
                answer = ""  # the next sample may succeed
            # A GPU that is partitioned (MIG) prints [N/A].
            shares = [int(line) / 100 for line in answer.split("\n") if line.strip().isdigit()]
            self._usage = self._usage.plus(GpuUsage(sum(shares), len(shares)))
            time.sleep(PERIOD)
