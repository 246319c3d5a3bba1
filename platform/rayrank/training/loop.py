"""The one training loop: evaluate, save, step, log. A phase brings its batches, its loss and where it starts from."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from rayrank.config import PhaseConfig
from rayrank.errors import TrainingStopped

LOG_EVERY = 20
COLLAPSE_STEPS = 200
"""Steps over which a loss that stays at chance, with scores all alike, counts as collapsed."""


class Phase(Protocol):
    """What makes a phase different from the others."""

    chance_loss: float
    """The loss of a model that scores everything alike."""

    def num_examples(self) -> int:
        """Return how many examples an epoch has."""

    def examples(self, epoch: int) -> list[Any]:
        """Return an epoch's examples in the order they are learnt, a function of (seed, epoch)."""

    def loss(self, model: nn.Module, examples: list[Any]) -> tuple[Tensor, Tensor]:
        """Return the mean loss over some examples, and the scores behind it."""

    def evaluate(self, model: nn.Module) -> float:
        """Return the dev metric, higher is better."""


@dataclass
class State:
    """Where a run is; saved with every checkpoint."""

    step: int = 0
    best: float = -math.inf
    best_step: int = -1
    flat_steps: int = 0


@dataclass(frozen=True)
class Log:
    """One line of the training log."""

    step: int
    num_steps: int
    loss: float
    lr: float
    grad_norm: float
    examples_per_s: float
    dev: float | None = None


class Checkpoint(Protocol):
    """Where the loop's states go; the Ray adapter and tests each have their own."""

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state, if there is one."""

    def save(self, state: dict[str, Any], best: bool, log: Log) -> None:
        """Keep a state; `best` ones hold the best weights so far."""


def fit(
    model: nn.Module,
    phase: Phase,
    config: PhaseConfig,
    *,
    seed: int,
    device: torch.device,
    checkpoint: Checkpoint,
    log: Callable[[Log], None],
) -> State:
    """Train until the last step and return where the best weights were seen; the same on every rank."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    optimizer = AdamW(_groups(model, config.weight_decay), lr=config.lr)
    per_epoch = math.ceil(phase.num_examples() / config.batch_size)
    num_steps = min(per_epoch * config.epochs, config.max_steps or math.inf)
    schedule = LambdaLR(optimizer, _warm_up_and_decay(int(config.warmup * num_steps), int(num_steps)))
    state = _restore(model, optimizer, schedule, checkpoint)
    started, seen = time.monotonic(), 0
    for step, examples in _batches(phase, config.batch_size, per_epoch, state.step, int(num_steps)):
        # Dropout too is a function of the step, so that a resumed run draws what the unbroken one drew.
        torch.manual_seed(hash((seed, step, rank)) % (1 << 63))
        loss, spread, norm = _step(model, phase, optimizer, examples, config, (rank, world), device, step)
        schedule.step()
        state.step = step + 1
        seen += len(examples)
        _watch(state, loss, spread, phase.chance_loss)
        ends_epoch = state.step % per_epoch == 0 or state.step == num_steps
        if not ends_epoch and state.step % LOG_EVERY:
            continue
        rate = seen / (time.monotonic() - started)
        line = Log(state.step, int(num_steps), loss, float(schedule.get_last_lr()[0]), norm, rate)
        if ends_epoch:
            line = _end_epoch(model, phase, optimizer, schedule, state, checkpoint, line)
        log(line)
    return state


def _batches(phase: Phase, size: int, per_epoch: int, start: int, stop: int) -> Iterator[tuple[int, list[Any]]]:
    epoch, examples = -1, []
    for step in range(start, stop):
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            examples = phase.examples(epoch)
        place = (step % per_epoch) * size
        yield step, examples[place : place + size]


def _step(
    model: nn.Module, phase: Phase, optimizer: AdamW, examples: list[Any], config: PhaseConfig,
    place: tuple[int, int], device: torch.device, step: int,
) -> tuple[float, float, float]:  # fmt: skip
    """Learn one batch, this rank's share of it, and return the loss, the spread of the scores and the gradient norm."""
    rank, world = place
    mine = examples[rank::world]
    micro = config.micro_batch_size or max(1, len(mine))
    total, scores = torch.zeros((), device=device), []
    for start in range(0, len(mine), micro):
        part = mine[start : start + micro]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss, scored = phase.loss(model, part)
        # DDP takes the mean over ranks; weights make that the mean over the batch, whatever the shares.
        share = loss * (len(part) * world / len(examples))
        share.backward()  # type: ignore[no-untyped-call]
        total += share.detach()
        scores.append(scored.detach().float().flatten())
    total = _mean_over_ranks(total)
    if not torch.isfinite(total):
        raise TrainingStopped(
            f"The loss at step {step} is {total.item()}: lower the learning rate (now {config.lr:g}) or raise the "
            f"warm-up; the last checkpoint is untouched."
        )
    norm = nn.utils.clip_grad_norm_(model.parameters(), config.clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    spread = torch.cat(scores).std(correction=0) if scores else torch.zeros((), device=device)
    return total.item(), spread.item(), float(norm)


def _mean_over_ranks(value: Tensor) -> Tensor:
    if dist.is_initialized():
        dist.all_reduce(value)
        value = value / dist.get_world_size()
    return value


def _watch(state: State, loss: float, spread: float, chance: float) -> None:
    """Stop a run whose scores have become one number."""
    flat = spread < 1e-3 and abs(loss - chance) < 0.02 * chance
    state.flat_steps = state.flat_steps + 1 if flat else 0
    if state.flat_steps >= COLLAPSE_STEPS:
        raise TrainingStopped(
            f"The scores collapsed: for {COLLAPSE_STEPS} steps every passage got the same score and the loss stayed at "
            f"{chance:.3f}, that of guessing; lower the learning rate, raise the warm-up, or check the labels."
        )


def _end_epoch(
    model: nn.Module,
    phase: Phase,
    optimizer: AdamW,
    schedule: LambdaLR,
    state: State,
    checkpoint: Checkpoint,
    line: Log,
) -> Log:
    dev = phase.evaluate(model)
    best = dev > state.best
    if best:
        state.best, state.best_step = dev, state.step
    line = Log(**{**asdict(line), "dev": dev})
    checkpoint.save(
        {
            "model": _plain(model).state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "state": asdict(state),
        },
        best,
        line,
    )
    return line


def _restore(model: nn.Module, optimizer: AdamW, schedule: LambdaLR, checkpoint: Checkpoint) -> State:
    saved = checkpoint.load()
    if saved is None:
        return State()
    _plain(model).load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    schedule.load_state_dict(saved["schedule"])
    return State(**saved["state"])


def _plain(model: nn.Module) -> nn.Module:
    """Return the model inside a DDP wrapper."""
    inner = getattr(model, "module", model)
    assert isinstance(inner, nn.Module)
    return inner


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Biases and layer norms do not decay."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _warm_up_and_decay(warmup: int, num_steps: int) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return max(0.0, (num_steps - step) / max(1, num_steps - warmup))

    return factor
