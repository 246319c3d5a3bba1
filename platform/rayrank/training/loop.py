"""The one training loop: evaluate, save, step, log. A phase brings its batches, its loss and where it starts from."""

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import LambdaLR

from rayrank.core.config import PhaseConfig, TrainingConfig
from rayrank.core.errors import TrainingStopped
from rayrank.training.steps import Learner, Learns, mean_over_ranks, plain_model

LOG_EVERY = 20
PROBED, ALIKE = 8, 0.01
"""Examples whose scores are looked at now and then, and the share of how much they differed at first that is left when
they count as alike."""


class Phase(Learns, Protocol):
    """What makes a phase different from the others."""

    def num_examples(self) -> int:
        """Return how many examples an epoch has."""

    def examples(self, epoch: int) -> list[Any]:
        """Return an epoch's examples in the order they are learnt, a function of (seed, epoch)."""

    def evaluate(self, model: nn.Module) -> float:
        """Return the dev metric, higher is better."""


@dataclass
class State:
    """Where a run is; saved with every checkpoint."""

    step: int = 0
    best: float = -math.inf
    best_step: int = -1
    spread: float = math.nan
    """By how much the scores of some examples differed before the first step."""
    seconds: float = 0.0
    """Spent on all steps so far, by one worker."""


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
    saved: bool = False
    """Whether a checkpoint holds this step."""


class Checkpoint(Protocol):
    """Where the loop's states go; the Ray adapter and tests each have their own."""

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state, if there is one."""

    def save(self, state: dict[str, Any], log: Log) -> None:
        """Keep a state; it holds the best weights so far as well as the last."""


Weights = dict[str, Tensor]


class Fitted(NamedTuple):
    """How a run ended."""

    state: State
    weights: Weights
    """Those of the best dev measurement."""


def fit(
    model: nn.Module,
    phase: Phase,
    config: PhaseConfig,
    *,
    training: TrainingConfig,
    device: torch.device,
    checkpoint: Checkpoint,
    log: Callable[[Log], None],
    save_every: int = 500,
) -> Fitted:
    """Train until the last step and return the best weights seen; the same on every rank."""
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    optimizer = AdamW(_groups(model, config.weight_decay), lr=config.lr, fused=True)
    per_epoch = math.ceil(phase.num_examples() / config.batch_size)
    num_steps = int(min(per_epoch * config.epochs, config.max_steps or math.inf))
    schedule = LambdaLR(optimizer, _warm_up_and_decay(int(config.warmup * num_steps), num_steps, config.lr_end))
    run = _Run(model, phase, optimizer, schedule, checkpoint)
    learn = Learner(model, phase, optimizer, config)
    state = run.restore()
    # Pre-trained weights come in the mode for scoring, without dropout.
    model.train()
    measured = {math.ceil(per_epoch * part / training.evaluations) for part in range(1, training.evaluations + 1)}
    started, seen, unread = time.monotonic(), 0, []
    probe: list[Any] = []
    for step, examples in _batches(phase, config.batch_size, per_epoch, state.step, num_steps):
        probe = examples[:PROBED] if not len(probe) else probe
        if not step:
            state.spread = _spread(model, phase, probe, device)
        unread.append(learn(examples, hash((training.seed, step, rank)) % (1 << 63), (rank, world)))
        schedule.step()
        state.step = step + 1
        seen += len(examples)
        measure = step % per_epoch + 1 in measured or state.step == num_steps
        save = measure or state.step % save_every == 0
        if not save and state.step % LOG_EVERY:
            continue
        # Only now: the device has nothing to do while its numbers are read.
        loss, norm = _watch(state, torch.stack(unread).tolist(), config.lr)
        unread.clear()
        elapsed = time.monotonic() - started
        line = Log(state.step, num_steps, loss, float(schedule.get_last_lr()[0]), norm, seen / elapsed)
        if save and _spread(model, phase, probe, device) <= ALIKE * state.spread:
            raise TrainingStopped(
                f"The scores collapsed: at step {state.step} everything gets the same score, whatever it says; lower "
                f"the learning rate (now {config.lr:g}), raise the warm-up, or check the labels; the last checkpoint "
                f"is untouched."
            )
        if measure:
            line = replace(line, dev=run.measure())
        if save:
            # Measuring and saving is not learning.
            state.seconds += elapsed
            line = replace(line, saved=True)
        # Before it is saved: who goes on from there says nothing of what came before.
        log(line)
        if save:
            run.save(line)
            started, seen = time.monotonic(), 0
    return Fitted(state, run.best_weights())


@dataclass
class _Run:
    """What a checkpoint holds."""

    model: nn.Module
    phase: Phase
    optimizer: AdamW
    schedule: LambdaLR
    checkpoint: Checkpoint
    state: State = field(default_factory=State)
    best: Weights | None = None
    """The best weights, where they are not the model's present ones."""

    def restore(self) -> State:
        saved = self.checkpoint.load()
        if saved is not None:
            plain_model(self.model).load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.schedule.load_state_dict(saved["schedule"])
            self.state, self.best = State(**saved["state"]), saved["best"]
            if self.state.best_step == self.state.step:
                self._keep_best()
        return self.state

    def measure(self) -> float:
        dev = self.phase.evaluate(self.model)
        if dev > self.state.best:
            self.state.best, self.state.best_step = dev, self.state.step
            self._keep_best()
        return dev

    def _keep_best(self) -> None:
        # On the CPU: the next steps change the model's own, and the device may have no room for two.
        weights = plain_model(self.model).state_dict()
        self.best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}

    def save(self, line: Log) -> None:
        is_best = self.state.best_step == self.state.step
        self.checkpoint.save(
            {
                "model": plain_model(self.model).state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(),
                "state": asdict(self.state),
                "best": None if is_best else self.best,
            },
            line,
        )

    def best_weights(self) -> Weights:
        return self.best if self.best is not None else plain_model(self.model).state_dict()


def _batches(phase: Phase, size: int, per_epoch: int, start: int, stop: int) -> Iterator[tuple[int, list[Any]]]:
    epoch, examples = -1, []
    for step in range(start, stop):
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            examples = phase.examples(epoch)
        place = (step % per_epoch) * size
        yield step, examples[place : place + size]


def _watch(state: State, steps: list[list[float]], lr: float) -> tuple[float, float]:
    """Stop a run whose loss or gradient is no number, before that is saved; return the last of both."""
    for step, (loss, norm) in enumerate(steps, state.step - len(steps)):
        if not (math.isfinite(loss) and math.isfinite(norm)):
            what = f"loss at step {step} is {loss}" if not math.isfinite(loss) else f"gradient at step {step} is {norm}"
            raise TrainingStopped(
                f"The {what}: lower the learning rate (now {lr:g}) or raise the warm-up; the last checkpoint is "
                f"untouched."
            )
    return steps[-1][0], steps[-1][1]


def _spread(model: nn.Module, phase: Phase, examples: list[Any], device: torch.device) -> float:
    """Return by how much scores differ where nothing is dropped: dropout would make them; no number for one score."""
    # A copy is never compiled, and the graphs of training are not those of scoring.
    copied = deepcopy(plain_model(model)).eval()
    found = []
    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        # As it learns, one by one as the memory may be small.
        for place in range(len(examples)):
            prepared = phase.prepare(copied, examples[place : place + 1])
            found.append(phase.loss(copied, prepared)[1].detach().float())
    return mean_over_ranks(torch.cat(found).std(0).max()).item()


def _groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Biases, STRM's for each head among them, and layer norms do not decay."""
    decayed: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (others if parameter.ndim <= 1 or name.endswith("strm_bias") else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def _warm_up_and_decay(warmup: int, num_steps: int, end: float) -> Callable[[int], float]:
    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return end + (1 - end) * max(0.0, (num_steps - step) / max(1, num_steps - warmup))

    return factor
