"""Trains a phase on Ray Train workers, which Ray replaces if they die; the driver logs and monitors the training."""

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
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from torch import Tensor

from rayrank.core import errors
from rayrank.core.artifacts import Artifact
from rayrank.core.config import PhaseConfig, ResourcesConfig, TrainingConfig
from rayrank.core.errors import TrainingStopped
from rayrank.core.progress import say
from rayrank.training.history import History
from rayrank.training.loop import Log
from rayrank.training.ray_worker import DriverQueues, Start, load_state, run_worker
from rayrank.training.worker_size import scale

CHECKPOINTS = "checkpoints"
"""The folder of an unfinished artifact that Ray Train keeps its checkpoints in."""

logger = logging.getLogger(__name__)

Report = Callable[[Log], bool]
"""Called in the driver with the log line of every dev measurement; returns whether training continues."""


class AtomicJson(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]
    """An artifact's file system that writes Ray Train's list of checkpoints, a JSON file, atomically.

    Ray Train writes the list in place; a kill in the middle would leave a list that no later training can read.
    """

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact.filesystem)
        self._artifact = artifact

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        if not path.endswith(".json"):
            return super().open_output_stream(path, metadata)
        name = path.removeprefix(self._artifact.path(""))
        return pa.PythonFile(_AtomicFile(self._artifact, name), mode="w")


class _AtomicFile(io.BytesIO):
    """A small file of an artifact, written when it is closed."""

    def __init__(self, artifact: Artifact, name: str) -> None:
        super().__init__()
        self._artifact, self._name = artifact, name

    def close(self) -> None:
        if not self.closed and self.tell():  # it is empty if an exception came before the first write
            with self._artifact.create(self._name) as stream:
                stream.write(self.getvalue())
        super().close()


UNUSED = ("DatasetsCallback", "PlacementGroupCleanerCallback")
"""Two classes of Ray Train, each of which starts a process for a training. The first process serves Ray datasets, but
phases read their examples from storage. The second removes the placement group of a controller that died, which Ray
also does without it. In a job without Ray's dashboard the second one delays the end of each training by 10 s, the time
for which it waits for the dashboard's answer."""


class _Trainer(ray.train.torch.TorchTrainer):
    """Ray Train without the processes in UNUSED.

    `_create_default_callbacks` is not part of Ray's public interface. A version of Ray that does not call it starts
    both processes as usual.
    """

    def _create_default_callbacks(self) -> list[Any]:
        found = super()._create_default_callbacks()  # type: ignore[misc]
        return [callback for callback in found if type(callback).__name__ not in UNUSED]


class LostWorkers(TrainingStopped):
    """The processes of a training died more often than `resources.retries` allows; its checkpoint stays."""


@dataclass(frozen=True)
class Trained:
    """The best weights of a phase, and what its manifest says."""

    weights: dict[str, Tensor]
    facts: dict[str, Any]
    description: dict[str, Any]
    """How the model is saved, see `rayrank.models.saved`."""


def train_phase(
    start: Start,
    config: PhaseConfig,
    *,
    section: str,
    training: TrainingConfig,
    resources: ResourcesConfig,
    artifact: Artifact,
    label: str,
    report: Report | None = None,
) -> Trained:
    """Train on the cluster, from the last checkpoint if the artifact has one, and return the best weights.

    `section` is the name of `config` in the configuration, for error messages.
    """
    # Seconds between Ray Train's checks of its workers; it notices the end or failure of a phase only at such a check.
    # `fit` copies this variable to Ray Train's controller.
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
    scaling = scale(resources)
    queues = DriverQueues(_queue(), _queue() if report else None)
    settings = ray.train.RunConfig(
        name=CHECKPOINTS,
        storage_path=artifact.path("").rstrip("/"),
        storage_filesystem=pyarrow.fs.PyFileSystem(AtomicJson(artifact)),
        failure_config=ray.train.FailureConfig(max_failures=resources.retries),
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
    )
    worker = partial(run_worker, start, section, config, training, resources, queues)

    def trainer() -> _Trainer:
        return _Trainer(worker, scaling_config=scaling, run_config=settings)

    with follow(queues, History(artifact, label), label, report), _interrupt_handler_kept():
        result = _fit(trainer, label, resources)
    if result.checkpoint is None:
        raise TrainingStopped(f"The {label} phase ended without a checkpoint; see the log.")
    saved = load_state(result.checkpoint)
    about, weights = saved["about"], saved["best"] if saved["best"] is not None else saved["model"]
    facts = {**about["facts"], **_facts(saved["state"], scaling), "device": about["device"]}
    return Trained(weights, facts, about["description"])


def _queue() -> Queue:
    # On this process's node, so that no other node's loss ends it. It reserves no core: the workers may need all.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})


def _fit(trainer: Callable[[], _Trainer], label: str, resources: ResourcesConfig) -> ray.train.Result:
    """Train; if Ray Train's controller dies, train again from the last checkpoint, as after the loss of a worker."""
    for left in reversed(range(resources.retries + 1)):
        try:
            return trainer().fit()
        except ray.train.TrainingFailedError as error:
            raise _explained(error, resources) from error
        except ray.exceptions.RayActorError as error:
            if not left:
                raise LostWorkers(_lost("its controller", error, resources)) from error
            say(f"{label}: Ray Train's controller died; training goes on from the last checkpoint")
    raise AssertionError


def _facts(state: dict[str, Any], scaling: ray.train.ScalingConfig) -> dict[str, Any]:
    size: dict[str, float] = scaling.resources_per_worker  # type: ignore[assignment]
    return {
        "num_steps": state["step"],
        "best_step": state["best_step"],
        "dev": state["best"],
        "train_seconds": round(state["seconds"], 2),
        "num_workers": scaling.num_workers,
        "gpus": size.get("GPU", 0),
    }


@contextmanager
def follow(queues: DriverQueues, history: History, label: str, report: Report | None) -> Iterator[None]:
    """Log what the workers send while the driver waits for them, and raise the error that they stopped with."""
    # Opened here, not in the follower's thread, where an error would leave the workers waiting for decisions.
    history.open()
    follower = _Follower(queues, history, label, report)
    follower.start()
    try:
        yield
    finally:
        follower.end()
        if follower.error:
            # This error is more specific than Ray Train's own exception.
            raise follower.error from None


class _Follower(threading.Thread):
    """Reads the workers' messages, and decides after each dev measurement whether they continue."""

    def __init__(self, queues: DriverQueues, history: History, label: str, report: Report | None) -> None:
        super().__init__(daemon=True)
        self._queues, self._history, self._label, self._report = queues, history, label, report
        self._is_over = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        messages = self._queues.messages
        while not (self._is_over.is_set() and messages.empty()):
            try:
                message = messages.get(timeout=0.5)
            except Empty:
                continue
            if "error" in message:
                self.error = self.error or getattr(errors, message["error"])(*message["arguments"])
            elif "note" in message:
                say(f"{self._label}: {message['note']}")
            elif "resumed" in message:
                say(f"{self._label}: resuming from the checkpoint at step {message['resumed']:,}")
            else:
                self._log(Log(**message))
        self._history.close()

    def _log(self, line: Log) -> None:
        continues = True
        try:
            self._history.add(line)
            if self._report and line.dev is not None:
                continues = self._report(line)
        except Exception:
            logger.exception("%s: step %d could not be logged; training continues", self._label, line.step)
        if self._queues.decisions is not None and line.dev is not None:
            # The workers wait for the decision, even if logging failed.
            self._queues.decisions.put((line.step, continues))

    def end(self) -> None:
        """Read the remaining messages and shut down the queues."""
        self._is_over.set()
        self.join(timeout=30)
        self._queues.messages.shutdown()
        if self._queues.decisions is not None:
            self._queues.decisions.shutdown()


@contextmanager
def _interrupt_handler_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C, which Ray Train replaces and does not restore."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _explained(error: ray.train.TrainingFailedError, resources: ResourcesConfig) -> Exception:
    """Return a LostWorkers error, which a job shows as one sentence, if workers died; return other errors unchanged."""
    # Ray Train reports a dead worker, unlike an exception in a worker, as a failed health check.
    found = getattr(error, "worker_failures", {}).values()
    failures = [getattr(failure, "health_check_failure", failure) for failure in found]
    if failures and all(isinstance(failure, ray.exceptions.RayError) for failure in failures):
        return LostWorkers(_lost("its workers", failures[0], resources))
    return error


def _lost(what: str, error: Exception, resources: ResourcesConfig) -> str:
    first = str(error).strip().split("\n")[0].rstrip(".")
    return (
        f"Training lost {what} more than resources.retries={resources.retries} times: {first}; run the same command "
        f"again to resume from the last checkpoint."
    )
