"""The one place where training meets Ray: the loop on a group of workers that may die, followed from the driver."""

import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.fs
import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from ray.util.queue import Empty, Queue
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rayrank import errors
from rayrank.artifacts import Artifact
from rayrank.config import PhaseConfig, ResourcesConfig, TrainingConfig
from rayrank.errors import ConfigError, RayrankError, StoppedEarly, TrainingStopped
from rayrank.progress import say
from rayrank.training.history import History
from rayrank.training.loop import Log, Phase, fit

RUN = "checkpoints"
"""The folder of an artifact in the making that Ray Train keeps its checkpoints in."""
_STATE = "state.pt"

logger = logging.getLogger(__name__)

Setup = Callable[[], tuple[nn.Module, Phase]]
Report = Callable[[Log], bool]
"""Hears of every dev measurement, in the driver, and answers whether training shall go on."""


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
        storage_filesystem=pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(artifact.filesystem)),
        failure_config=ray.train.FailureConfig(max_failures=resources.retries),
        checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
    )
    work = partial(_work, setup, config, training, resources, board, answers)
    trainer = ray.train.torch.TorchTrainer(work, scaling_config=scaling, run_config=settings)
    with _followed(board, answers, History(artifact, config, label), label, report), _own_interrupts():
        try:
            result = trainer.fit()
        except ray.train.TrainingFailedError as error:
            raise _explained(error, resources) from error
    if result.checkpoint is None:
        raise TrainingStopped(f"The {label} phase ended without a checkpoint; see the log.")
    saved = _load(result.checkpoint)
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


def _work(
    setup: Setup, config: PhaseConfig, training: TrainingConfig, resources: ResourcesConfig, board: Queue,
    answers: Queue | None,
) -> None:  # fmt: skip
    """Run the loop on one worker."""
    context, device = ray.train.get_context(), ray.train.torch.get_device()
    first = context.get_world_rank() == 0
    if device.type == "cpu":
        assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
        torch.set_num_threads(int(assigned.get("CPU", 1)))
    else:
        # What one process keeps for later, those it shares the GPU with cannot have.
        torch.cuda.set_per_process_memory_fraction(resources.train_gpus or 1.0, device)
    # A fresh head starts the same on every worker and at every try.
    torch.manual_seed(training.seed)
    try:
        model, phase = _together(setup)
        model.to(device)
        if context.get_world_size() > 1:
            # Buffers are tables that no step changes, and ranks may differ in how many forwards a step takes.
            ids = [device] if device.type == "cuda" else None
            model = DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False)
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

        def log(line: Log) -> None:
            if first:
                board.put(asdict(line))
            if answers is not None and line.dev is not None and not _wanted(answers, line.step, first):
                raise StoppedEarly(f"Training was stopped at step {line.step} by who follows it.")

        kept = _Checkpoints(first, name, board)
        fit(
            model, phase, config, training=training, device=device, checkpoint=kept, log=log,
            save_every=resources.checkpoint_steps,
        )  # fmt: skip
    except RayrankError as error:
        # All ranks stop here together; trying again would end the same way.
        if first:
            board.put({"error": type(error).__name__, "arguments": error.args})
    except torch.OutOfMemoryError:
        board.put(
            {
                "error": TrainingStopped.__name__,
                "arguments": (
                    f"A batch does not fit into the memory of {device}: set micro_batch_size of this phase to less "
                    f"than {config.micro_batch_size or config.batch_size}{_or_more_memory(resources)}.",
                ),
            }
        )
        if context.get_world_size() > 1:
            # The others are waiting for this one; Ray ends them with it.
            raise


def _or_more_memory(resources: ResourcesConfig) -> str:
    share = resources.train_gpus or 1.0
    return f", or raise resources.train_gpus={share:g}: a worker has that share of the memory" if share < 1 else ""


def _wanted(answers: Queue, step: int, first: bool) -> bool:
    """Return on every rank what the follower answered the first one on a step."""
    answer = [True]
    while first:
        of, answer[0] = answers.get()
        if of == step:
            break  # any other was for a worker that died before it heard it
    if dist.is_initialized():
        dist.broadcast_object_list(answer)
    return answer[0]


def _together(setup: Setup) -> tuple[nn.Module, Phase]:
    """Return what `setup` does, or raise on every rank what it raised on any: those left alone would wait forever."""
    mine: RayrankError | None = None
    made = None
    try:
        made = setup()
    except RayrankError as error:
        mine = error
    found: list[RayrankError | None] = [mine]
    if dist.is_initialized():
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, mine)
    for raised in found:
        if raised is not None:
            raise raised
    assert made is not None
    return made


class _Checkpoints:
    """The loop's states as Ray Train checkpoints; every rank reports, the first one writes."""

    def __init__(self, first: bool, device: str, board: Queue) -> None:
        self._first, self._device, self._board = first, device, board

    def load(self) -> dict[str, Any] | None:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return None
        saved = _load(checkpoint)
        if self._first:
            self._board.put({"resumed": saved["state"]["step"]})
        return saved

    def save(self, state: dict[str, Any], log: Log) -> None:
        metrics = {"device": self._device, **asdict(log)}
        if not self._first:
            ray.train.report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            torch.save(state, Path(folder, _STATE))
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def _load(checkpoint: ray.train.Checkpoint) -> dict[str, Any]:
    with checkpoint.as_directory() as folder:
        return torch.load(Path(folder, _STATE), map_location="cpu", weights_only=True)  # type: ignore[no-any-return]


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
