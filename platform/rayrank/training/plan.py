"""The plan of a phase: its batch size, its number of steps, and after which of them dev is measured and a checkpoint
saved."""

import math
from dataclasses import dataclass

from rayrank.core.config import PhaseConfig

LOG_EVERY = 20

MOST_EPOCHS = 30
"""The most epochs that `min_steps` may lead to when there is little data; `epochs` itself may be higher."""

MEASUREMENTS = 8
"""Number of dev measurements of a phase that got more epochs to reach `min_steps`; measuring after each of its short
epochs would take too long."""


@dataclass(frozen=True)
class Plan:
    """The settings for the number of examples, and the steps, counted from 1, to log, measure and save at."""

    config: PhaseConfig
    per_epoch: int
    num_steps: int
    measured: frozenset[int]
    save_every: int

    @classmethod
    def of(cls, num_examples: int, config: PhaseConfig, evaluations: int = 1, save_every: int = 500) -> "Plan":
        """Plan a phase: if it would have fewer than `min_steps` steps, reduce the batch size, then add epochs."""
        scaled = scaled_to(num_examples, config)
        per_epoch = math.ceil(num_examples / scaled.batch_size)
        num_steps = int(min(per_epoch * scaled.epochs, config.max_steps or math.inf))
        if scaled.epochs > config.epochs:
            measured = [math.ceil(num_steps * part / MEASUREMENTS) for part in range(1, MEASUREMENTS + 1)]
        else:
            within = [math.ceil(per_epoch * part / evaluations) for part in range(1, evaluations + 1)]
            measured = [epoch * per_epoch + step for epoch in range(scaled.epochs) for step in within]
        return cls(scaled, per_epoch, num_steps, frozenset([*measured, num_steps]), save_every)

    def is_measured(self, step: int) -> bool:
        return step in self.measured

    def is_saved(self, step: int) -> bool:
        return self.is_measured(step) or step % self.save_every == 0

    def is_logged(self, step: int) -> bool:
        return self.is_saved(step) or step % LOG_EVERY == 0

    def facts(self) -> dict[str, float]:
        """Return the settings that were used."""
        return {"batch_size": self.config.batch_size, "epochs": self.config.epochs, "lr": self.config.lr}

    def note(self, num_examples: int, given: PhaseConfig) -> str:
        """Return a sentence about settings that differ from the given ones; empty if none does."""
        used = self.config
        if (used.batch_size, used.epochs) == (given.batch_size, given.epochs):
            return ""
        return (
            f"{num_examples:,} examples are few: {self.num_steps:,} steps with batches of {used.batch_size} instead of "
            f"{given.batch_size}, {used.epochs} epochs instead of {given.epochs}, and a learning rate of {used.lr:.2g}"
        )


def scaled_to(num_examples: int, config: PhaseConfig) -> PhaseConfig:
    """Return the settings for `num_examples` examples: the given ones if they lead to `min_steps` steps or more.

    Otherwise the batch is halved until they do, but not below `smallest_batch`; the learning rate falls with the square
    root of the batch size. If that is not enough, epochs are added.
    """

    def num_steps(batch: int) -> int:
        return math.ceil(num_examples / batch) * config.epochs

    batch = config.batch_size
    while num_steps(batch) < config.min_steps and batch // 2 >= config.smallest_batch:
        batch //= 2
    epochs = config.epochs
    if num_steps(batch) < config.min_steps:
        epochs = max(epochs, min(MOST_EPOCHS, math.ceil(config.min_steps / math.ceil(num_examples / batch))))
    lr = config.lr * math.sqrt(batch / config.batch_size)
    return config.model_copy(update={"batch_size": batch, "epochs": epochs, "lr": lr})
