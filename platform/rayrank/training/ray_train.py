"""A phase on a group of Ray Train workers that may die, followed from the driver."""

import io
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.fs
import ray
import ray.train
import ray.train.torch
from ray.util.queue import Empty, Queue
from torch import Tensor

from rayrank.core import errors
from rayrank.core.artifacts import Artifact
from rayrank.core.config import PhaseConfig, ResourcesConfig, TrainingConfig
from rayrank.core.errors import ConfigError, TrainingStopped
from rayrank.core.progress import say
from rayrank.training.history import History
from rayrank.training.loop import Log
from rayrank.training.ray_worker import Setup, load_state, work

RUN = "checkpoints"
"""The folder of an artifact in the making that Ray Train keeps its checkpoints in."""

# Seconds between Ray Train's looks at its workers: a phase that is over waits for the next, a failed one too.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")

logger = logging.getLogger(__name__)

Report = Callable[[Log], bool]
"""Hears of every dev measurement, in the driver, and answers whether training shall go on."""


class WholeJson(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]
    """An artifact's file system for Ray Train, whose list of checkpoints is there whole or not at all.

    Ray Train writes it in place; killed in the middle, it would leave a list that no later try could read.
    """

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact.filesystem)
        self._artifact = artifact

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        if not path.endswith(".json"):
            return super().open_output_stream(path, metadata)
        name = path.removeprefix(self._artifact.path(""))
        return pa.PythonFile(_Whole(self._artifact, name), mode="w")


class _Whole(io.BytesIO):
    """A small file that is written when it is closed."""

    def __init__(self, artifact: Artifact, name: str) -> None:
        super().__init__()
        self._artifact, self._name = artifact, name

    def close(self) -> None:
        if not self.closed and self.tell():  # or nothing came to be written
            with self._artifact.create(self._name) as stream:
                stream.write(self.getvalue())
        super().close()


class LostWorkers(TrainingStopped):
    """Training whose workers died more often than they may; its checkpoint stays."""


@dataclass(frozen=True)
class Trained:
    """What a phase leaves behind."""

    weights: dict[str, Tensor]
    facts: dict[str, Any]


def run_phase(
    setup: Setup,
    config: PhaseConfig,
    *,
    training: TrainingConfig,
    resources: ResourcesConfig,
    artifact: Artifact,
    label: str,
    report: Report | None = None,
) -> Trained:
    """Train on the cluster, going on from the last checkpoint of an earlier try, and return the best weights."""
    scaling = scale(resources)
    size: dict[str, float] = scaling.resources_per_worker  # type: ignore[assignment]
    board = Queue(actor_options={"num_cpus": 0})
    answers = Queue(actor_options={"num_cpus": 0}) if report else None
    settings = ray.train.RunConfig(
        name=RUN,
        storage_path=artifact.path("").rstrip("/"),
        storage_filesystem=pyarrow.fs.PyFileSystem(WholeJson(artifact)),
        failure_config=ray.train.FailureConfig(max_failures=resources.retries),
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
    )
    each = partial(work, setup, config, training, resources, board, answers)
    trainer = ray.train.torch.TorchTrainer(each, scaling_config=scaling, run_config=settings)
    with _followed(board, answers, History(artifact, config, label), label, report), _own_interrupts():
        try:
            result = trainer.fit()
        except ray.train.TrainingFailedError as error:
            raise _explained(error, resources) from error
    if result.checkpoint is None:
        raise TrainingStopped(f"The {label} phase ended without a checkpoint; see the log.")
    saved = load_state(result.checkpoint)
    state = saved["state"]
    facts = {
        "num_steps": state["step"],
        "best_step": state["best_step"],
        "dev": state["best"],
        "train_seconds": round(state["seconds"], 2),
        "num_workers": scaling.num_workers,
        "gpus": size.get("GPU", 0),
        "device": result.metrics["device"] if result.metrics else "",
    }
    return Trained(saved["best"] if saved["best"] is not None else saved["model"], facts)


def scale(resources: ResourcesConfig) -> ray.train.ScalingConfig:
    """Return how many workers of what size: one a GPU where the cluster has any, else one with a node's cores."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    there = sum(node.get("GPU", 0) for node in nodes)
    gpus = resources.train_gpus if resources.train_gpus is not None else min(1.0, there)
    workers = resources.train_workers or (max(1, int(there)) if gpus else 1)
    cores = [int(node.get("CPU", 0)) for node in nodes]
    cpus = resources.train_cpus or (1 if gpus else max(1, min(max(cores), sum(cores) // workers)))
    room = [min(node.get("CPU", 0) // cpus, node.get("GPU", 0) / gpus if gpus else workers) for node in nodes]
    if sum(map(int, room)) < workers:
        _too_large(workers, cpus, gpus)
    size = {"CPU": cpus, **({"GPU": gpus} if gpus else {})}
    return ray.train.ScalingConfig(num_workers=workers, use_gpu=gpus > 0, resources_per_worker=size)


def _too_large(workers: int, cpus: int, gpus: float) -> None:
    """Say that the cluster has no room for the workers now; one that cannot grow never will."""
    wanted = (
        f"resources.train_workers={workers} with {cpus} cores (resources.train_cpus) and {gpus:g} GPUs "
        f"(resources.train_gpus) each"
    )
    if not os.environ.get("RAY_ADDRESS"):
        raise ConfigError(f"{wanted} cannot be used: this machine has no room for them; ask for less.")
    say(f"the cluster has no room for {wanted}; waiting for it to grow")


@contextmanager
def _followed(
    board: Queue, answers: Queue | None, history: History, label: str, report: Report | None
) -> Iterator[None]:
    """Show and log what the workers say while the driver waits for them, and raise what they stopped for."""
    stopped: list[dict[str, Any]] = []
    over = threading.Event()

    def follow() -> None:
        with history:
            while not (over.is_set() and board.empty()):
                try:
                    said = board.get(timeout=0.5)
                except Empty:
                    continue
                if "error" in said:
                    stopped.append(said)
                elif "resumed" in said:
                    say(f"{label}: going on from the checkpoint at step {said['resumed']:,}")
                else:
                    tell(Log(**said))

    def tell(line: Log) -> None:
        goes_on = True
        try:
            history.add(line)
            if report and line.dev is not None:
                goes_on = report(line)
        except Exception:
            logger.exception("%s: what step %d measured could not be told; training goes on", label, line.step)
        if answers is not None and line.dev is not None:
            # The workers wait for it, whatever went wrong here.
            answers.put((line.step, goes_on))

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join(timeout=30)
        board.shutdown()
        if answers is not None:
            answers.shutdown()
        if stopped:
            # Says more than what Ray Train made of it.
            raise getattr(errors, stopped[0]["error"])(*stopped[0]["arguments"]) from None


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Ray Train takes Ctrl-C for itself and never gives it back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    mine = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, mine)


def _explained(error: ray.train.TrainingFailedError, resources: ResourcesConfig) -> Exception:
    """Return a lost worker as a sentence; anything else is a fault that should be seen whole."""
    # A worker that was killed, not one that raised, comes wrapped in what the health check says.
    found = getattr(error, "worker_failures", {}).values()
    failures = [getattr(failure, "health_check_failure", failure) for failure in found]
    if failures and all(isinstance(failure, ray.exceptions.RayError) for failure in failures):
        first = str(failures[0]).strip().split("\n")[0].rstrip(".")
        return LostWorkers(
            f"Training lost its workers more than resources.retries={resources.retries} times: {first}; run the same "
            f"command again to go on from the last checkpoint."
        )
    return error
