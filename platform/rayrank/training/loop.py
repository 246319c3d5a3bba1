"""The training loop of all phases: step, evaluate, log, save. A phase brings its examples, loss and dev metric."""

import math
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from rayrank.core.config import PhaseConfig, TrainingConfig
from rayrank.core.errors import TrainingStopped
from rayrank.training import steps
from rayrank.training.plan import Plan
from rayrank.training.steps import mean_over_ranks, plain_model

NUM_PROBES = 8
"""Number of examples (probes) whose scores are checked for collapse before every checkpoint."""
COLLAPSED = 0.01
"""Stop if the spread of the probes' scores falls below 1 % of its initial value."""


class Phase(steps.Objective, Protocol):
    """The part of training that differs from phase to phase."""

    measures_start: bool
    """Whether dev is measured before the first step, too, because the model can already do the phase's task.

    If no step improves the dev metric, the weights from before the first step are kept.
    """

    def num_examples(self) -> int:
        """Return the number of examples in an epoch."""

    def examples(self, epoch: int) -> list[Any]:
        """Return an epoch's examples in the order of training, a function of (seed, epoch)."""

    def evaluate(self, model: nn.Module, rank: int, world: int) -> tuple[float, int]:
        """Return the sum of the dev metric (higher is better) over worker `rank`'s share of dev, and the share's size.

        The size counts what the metric is averaged over: queries, examples or words. The method must not communicate
        with other workers: the loop adds the shares up.
        """

    def facts(self) -> dict[str, Any]:
        """Return what the artifact's manifest says about the examples."""


@dataclass
class State:
    """The progress of a training, saved with every checkpoint."""

    step: int = 0
    best: float = -math.inf
    best_step: int = -1
    """0 if the weights before the first step are the best."""
    num_worse: int = 0
    """Dev measurements since the best one."""
    spread: float = math.nan
    """The spread of the probes' scores before the first step."""
    seconds: float = 0.0
    """Seconds that one worker has spent on steps; dev measurements and checkpoints are not counted."""


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
    """Saves and loads the loop's state; the Ray worker and the tests implement it."""

    def load(self) -> dict[str, Any] | None:
        """Return the last saved state, if there is one."""

    def save(self, state: dict[str, Any], log: Log) -> None:
        """Save a state, which has the current weights and the best ones so far."""


Weights = dict[str, Tensor]


class Fitted(NamedTuple):
    """The last state of a training, and the weights of the best dev measurement."""

    state: State
    weights: Weights


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
    """Train from the last checkpoint to the last step; return the weights of the best dev metric, on every rank."""
    plan = Plan.of(phase.num_examples(), config, training.evaluations, save_every)
    loop = _Training(model, phase, plan, training, device, checkpoint)
    # from_pretrained returns a model in evaluation mode, without dropout.
    model.train()
    if phase.measures_start and not loop.state.step:
        loop.measure_start()
    for examples in loop.batches():
        loop.step(examples)
        if not plan.is_logged(loop.state.step):
            continue
        line = loop.log_line()
        if plan.is_saved(loop.state.step):
            loop.stop_if_collapsed()
            line = replace(line, saved=True)
        if plan.is_measured(loop.state.step):
            line = replace(line, dev=loop.evaluate())
        # Logged before it is saved: a training resumed from this checkpoint does not log earlier steps again.
        log(line)
        if line.saved:
            loop.save(line)
    return Fitted(loop.state, loop.best_weights())


class _Training:
    """A model in training: all that a checkpoint holds, and the operations of the loop."""

    _best: Weights | None
    """The weights of the best dev measurement, on the CPU."""
    _probes: list[Any]
    _unread: list[Tensor]
    """The loss and the gradient norm of each step since the last log line, still on the device."""

    def __init__(
        self, model: nn.Module, phase: Phase, plan: Plan, training: TrainingConfig, device: torch.device,
        checkpoint: Checkpoint,
    ) -> None:  # fmt: skip
        """Start from the last checkpoint, or from the model's weights if there is none."""
        self._model, self._phase, self._plan, self._seed = model, phase, plan, training.seed
        self._patience, self._device, self._checkpoint = training.patience, device, checkpoint
        self._config = config = plan.config
        self._optimizer = steps.adamw(model, config)
        factor = _warm_up_and_decay(int(config.warmup * plan.num_steps), plan.num_steps, config.lr_end)
        self._schedule = LambdaLR(self._optimizer, factor)
        self._train_step = steps.TrainStep(model, phase, self._optimizer, config)
        self.state, self._best, self._probes = State(), None, []
        self._unread, self._num_seen, self._seconds, self._started = [], 0, 0.0, time.monotonic()
        self._restore()

    def _restore(self) -> None:
        saved = self._checkpoint.load()
        if saved is None:
            return
        plain_model(self._model).load_state_dict(saved["model"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self._schedule.load_state_dict(saved["schedule"])
        self.state, self._best = State(**saved["state"]), saved["best"]
        if self.state.best_step == self.state.step:
            self._keep_best()

    def measure_start(self) -> None:
        """Measure the weights before the first step; the time that this takes is not counted."""
        self.evaluate()
        self._started = time.monotonic()

    def batches(self) -> Iterator[list[Any]]:
        """Yield the batches from the current step to the last, or until dev has not improved for too long."""
        epoch, examples, size = -1, [], self._config.batch_size
        for step in range(self.state.step, self._plan.num_steps):
            if self._patience and self.state.num_worse >= self._patience:
                return
            if step // self._plan.per_epoch != epoch:
                epoch = step // self._plan.per_epoch
                examples = self._phase.examples(epoch)
            begin = step % self._plan.per_epoch * size
            yield examples[begin : begin + size]

    def step(self, examples: list[Any]) -> None:
        """Train on one batch."""
        step, (rank, world) = self.state.step, steps.rank_and_world()
        if not len(self._probes):
            self._probes = examples[:NUM_PROBES]
        if not step:
            self.state.spread = self._spread()
        # Dropout too is a function of (seed, step, rank), so that a resumed training repeats it.
        seed = hash((self._seed, step, rank)) % (1 << 63)
        self._unread.append(self._train_step(examples, seed, rank, world))
        self._schedule.step()
        self.state.step = step + 1
        self._num_seen += len(examples)

    def log_line(self) -> Log:
        """Return the log line of the last step; stop if a loss or gradient since the last line is not finite."""
        # Reading the losses waits for the device, so it is done once per log line.
        losses = torch.stack(self._unread).tolist()
        self._unread.clear()
        self._seconds = time.monotonic() - self._started
        for step, (loss, norm) in enumerate(losses, self.state.step - len(losses) + 1):
            if not (math.isfinite(loss) and math.isfinite(norm)):
                name, value = ("gradient norm", norm) if math.isfinite(loss) else ("loss", loss)
                raise TrainingStopped(
                    f"The {name} at step {step} is {value}: lower the learning rate (now {self._config.lr:g}) or raise "
                    f"the warm-up; the last checkpoint is untouched."
                )
        lr, rate = float(self._schedule.get_last_lr()[0]), self._num_seen / self._seconds
        return Log(self.state.step, self._plan.num_steps, losses[-1][0], lr, losses[-1][1], rate)

    def stop_if_collapsed(self) -> None:
        """Stop if the scores of the probes have become (nearly) equal."""
        if self._spread() <= COLLAPSED * self.state.spread:
            raise TrainingStopped(
                f"The scores collapsed: at step {self.state.step} all inputs get the same score; lower the learning "
                f"rate (now {self._config.lr:g}), raise the warm-up, or check the labels; the last checkpoint is "
                f"untouched."
            )

    def _spread(self) -> float:
        """Return the standard deviation of the probes' scores, NaN if fewer than two examples have one."""
        # A copy in evaluation mode, because dropout alone would make scores differ; its layers are not compiled.
        copied = deepcopy(plain_model(self._model)).eval()
        found = []
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._device.type == "cuda"):
            # Probes are scored one by one, because memory may have no room for more than a micro-batch.
            for index in range(len(self._probes)):
                prepared = self._phase.prepare(copied, self._probes[index : index + 1])
                found.append(self._phase.loss(copied, prepared)[1].detach().float())
        scores = torch.cat(found).view(sum(map(len, found)), -1)
        scores = scores[~scores.isnan().any(1)]
        spread = scores.std(0).max() if len(scores) > 1 else torch.full((), math.nan, device=self._device)
        return float(mean_over_ranks(spread))

    def evaluate(self) -> float:
        """Return the dev metric of all workers' shares together, and keep the weights if it is the best so far."""
        with steps.same_error_on_all_ranks():
            share = self._phase.evaluate(self._model, *steps.rank_and_world())
        total, count = mean_over_ranks(torch.tensor(share, dtype=torch.float64, device=self._device)).tolist()
        dev = float(total / count)
        self.state.num_worse += 1
        if dev > self.state.best:
            self.state.best, self.state.best_step, self.state.num_worse = dev, self.state.step, 0
            self._keep_best()
        return dev

    def _keep_best(self) -> None:
        # On the CPU, because the device may have no room for two copies.
        weights = plain_model(self._model).state_dict()
        self._best = {name: tensor.detach().to("cpu", copy=True) for name, tensor in weights.items()}

    def best_weights(self) -> Weights:
        """Return the weights of the best dev measurement, or the current ones if all measurements were NaN."""
        return self._best if self._best is not None else plain_model(self._model).state_dict()

    def save(self, line: Log) -> None:
        """Save a checkpoint; the time that this takes is not counted as training."""
        self.state.seconds += self._seconds
        state = {
            "model": plain_model(self._model).state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "schedule": self._schedule.state_dict(),
            "state": asdict(self.state),
            "best": None if self.state.best_step == self.state.step else self._best,
        }
        self._checkpoint.save(state, line)
        self._num_seen, self._started = 0, time.monotonic()


def _warm_up_and_decay(warmup: int, num_steps: int, end: float) -> Callable[[int], float]:
    """Return the factor of the learning rate at each step: linear warm-up, then linear decay to `end`."""

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return end + (1 - end) * max(0.0, (num_steps - step) / max(1, num_steps - warmup))

    return factor
