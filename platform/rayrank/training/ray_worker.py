"""What one worker of a group does: the loop, its checkpoints with Ray Train, and what it says to the driver."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed as dist
from ray.util.queue import Queue
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rayrank.core.config import PhaseConfig, ResourcesConfig, TrainingConfig
from rayrank.core.errors import RayrankError, StoppedEarly, TrainingStopped
from rayrank.training.loop import Log, Phase, fit

Setup = Callable[[], tuple[nn.Module, Phase]]

_STATE = "state.pt"


def work(
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
        saved = load_state(checkpoint)
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


def load_state(checkpoint: ray.train.Checkpoint) -> dict[str, Any]:
    """Return what a checkpoint was made of."""
    with checkpoint.as_directory() as folder:
        return torch.load(Path(folder, _STATE), map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
