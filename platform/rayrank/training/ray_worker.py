"""One Ray Train worker: runs the training loop, keeps its checkpoints with Ray Train and reports to the driver."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
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
from rayrank.core.copies import temporary_folder
from rayrank.core.errors import RayrankError, StoppedEarly, TrainingStopped
from rayrank.training.loop import Log, Phase, fit
from rayrank.training.plan import Plan
from rayrank.training.steps import plain_model, same_error_on_all_ranks

Start = Callable[[], tuple[nn.Module, Phase]]
"""Reads the model to start from and the phase's examples from storage."""

_STATE = "state.pt"


@dataclass(frozen=True)
class DriverQueues:
    """The queues between the workers and the driver."""

    messages: Queue
    """To the driver: log lines, errors, sentences for the user, and the step of a checkpoint to resume from."""
    decisions: Queue | None
    """From the driver: after each dev measurement (step, whether training continues); None if it always does."""

    def log(self, line: Log, is_first: bool) -> None:
        """Send a log line; raise on every rank if the driver decides that training stops here."""
        if is_first:
            self.messages.put(asdict(line))
        if self.decisions is None or line.dev is None:
            return
        if not await_decision(self.decisions, line.step, is_first):
            raise StoppedEarly(f"The driver stopped the training at step {line.step}.")

    def report_error(self, error: type[RayrankError], *arguments: Any) -> None:
        """Send an error for the driver to raise; if this worker raised it, Ray Train would restart the worker."""
        self.messages.put({"error": error.__name__, "arguments": arguments})


def run_worker(
    start: Start, section: str, config: PhaseConfig, training: TrainingConfig, resources: ResourcesConfig,
    queues: DriverQueues,
) -> None:  # fmt: skip
    """Train on this worker; `section` is the name of `config` in the configuration."""
    context, device = ray.train.get_context(), ray.train.torch.get_device()
    is_first, batch_size = context.get_world_rank() == 0, config.batch_size
    _limit_resources(device, resources)
    # A randomly initialised head starts with the same weights on every worker and after every restart.
    torch.manual_seed(training.seed)
    try:
        with same_error_on_all_ranks():
            model, phase = start()
        model.to(device)
        plan = Plan.of(phase.num_examples(), config)
        batch_size = plan.config.batch_size
        if is_first and (note := plan.note(phase.num_examples(), config)):
            queues.messages.put({"note": note})
        about = {"facts": {**phase.facts(), **plan.facts()}, "description": plain_model(model).description()}
        fit(
            _distributed(model, device, context.get_world_size()), phase, config, training=training, device=device,
            checkpoint=_RayCheckpoints(is_first, device, about, queues),
            log=lambda line: queues.log(line, is_first), save_every=resources.checkpoint_steps,
        )  # fmt: skip
    except RayrankError as error:
        # All ranks raise the same error, and a restart would end in the same way.
        if is_first:
            queues.report_error(type(error), *error.args)
    except torch.OutOfMemoryError:
        queues.report_error(
            TrainingStopped,
            f"A batch does not fit into the memory of {device}: set {section}.micro_batch_size to less than "
            f"{config.micro_batch_size or batch_size}{_or_more_memory(resources)}.",
        )
        if context.get_world_size() > 1:
            # The other workers wait for this one; Ray Train ends them when it fails.
            raise


def _distributed(model: nn.Module, device: torch.device, num_workers: int) -> nn.Module:
    if num_workers == 1:
        return model
    # Buffers are not broadcast: they are constant, and ranks may differ in forward passes per step.
    ids = [device] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, broadcast_buffers=False)


def _limit_resources(device: torch.device, resources: ResourcesConfig) -> None:
    """Limit this worker to the cores that Ray assigned, or on a GPU to its share of the memory."""
    if device.type == "cpu":
        assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
        torch.set_num_threads(int(assigned.get("CPU", 1)))
    else:
        # Without a limit PyTorch's cache would take memory from other processes on the same GPU.
        torch.cuda.set_per_process_memory_fraction(resources.train_gpus or 1.0, device)


def _or_more_memory(resources: ResourcesConfig) -> str:
    share = resources.train_gpus or 1.0
    return f", or raise resources.train_gpus={share:g}: a worker has that share of the memory" if share < 1 else ""


def await_decision(decisions: Queue, step: int, is_first: bool) -> bool:
    """Return on every rank whether training continues after a step, as the driver decided."""
    decision = [True]
    while is_first:
        of_step, decision[0] = decisions.get()
        if of_step == step:
            break  # a decision on another step was meant for a worker that has died
    if dist.is_initialized():
        dist.broadcast_object_list(decision)
    return decision[0]


class _RayCheckpoints:
    """The loop's states as Ray Train checkpoints: every rank reports, the first one writes."""

    def __init__(self, is_first: bool, device: torch.device, about: dict[str, Any], queues: DriverQueues) -> None:
        self._is_first, self._queues = is_first, queues
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self._about = {"device": name, **about}
        """Facts about the device, the phase and the model for the driver; every checkpoint has them."""

    def load(self) -> dict[str, Any] | None:
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return None
        saved = load_state(checkpoint)
        if self._is_first:
            self._queues.messages.put({"resumed": saved["state"]["step"]})
        return saved

    def save(self, state: dict[str, Any], log: Log) -> None:
        if not self._is_first:
            ray.train.report(asdict(log))
            return
        with temporary_folder() as folder:
            torch.save({**state, "about": self._about}, folder / _STATE)
            ray.train.report(asdict(log), checkpoint=ray.train.Checkpoint.from_directory(str(folder)))


def load_state(checkpoint: ray.train.Checkpoint) -> dict[str, Any]:
    """Return the state that a checkpoint holds."""
    # Not `as_directory`: the copy that it makes would stay if this process was killed while it reads.
    with temporary_folder() as folder:
        checkpoint.to_directory(str(folder))
        return torch.load(folder / _STATE, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
