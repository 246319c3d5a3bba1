"""Early stopping of weak trials by asynchronous successive halving (ASHA).

Ray Tune's own scheduler would kill a trial's process, and the training's workers would keep running and hold their
resources. Here each trial asks ASHA after every epoch, and ends its training itself.
"""

from types import SimpleNamespace
from typing import Any

import ray
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from rayrank.core.artifacts import Artifact
from rayrank.core.progress import say
from rayrank.tune.search import EPOCH
from rayrank.tune.spaces import EPOCHS, STEPS, Space
from rayrank.tune.study import DEV, measurements, trial_name

REDUCTION = 2
"""One in this many trials continues beyond each rung."""


class Rungs:
    """ASHA's rungs: the dev metric of all trials after each epoch."""

    def __init__(self, epochs: int) -> None:
        self._asha = ASHAScheduler(
            time_attr=EPOCH, metric=DEV, mode="max", max_t=epochs, reduction_factor=REDUCTION, stop_last_trials=False
        )
        self._trials: dict[str, Any] = {}
        self._stopped: set[tuple[str, int]] = set()

    def may_continue(self, name: str, epoch: int, dev: float) -> bool:
        """Record a trial's dev metric after an epoch, and return whether the trial is good enough to continue."""
        if name not in self._trials:
            self._trials[name] = SimpleNamespace(trial_id=name)
            self._asha.on_trial_add(None, self._trials[name])  # type: ignore[arg-type]
        decision = self._asha.on_trial_result(None, self._trials[name], {EPOCH: epoch, DEV: dev})  # type: ignore[arg-type]
        if decision == TrialScheduler.STOP:
            # Remembered because ASHA would let the trial continue if it asked for the same epoch again.
            self._stopped.add((name, epoch))
        return (name, epoch) not in self._stopped


def restored_rungs(folder: Artifact, epochs: int) -> Rungs:
    """Return rungs that contain all measurements of the sweep in a folder, in the order in which they were made."""
    rungs = Rungs(epochs)
    for changes, epoch, dev in measurements(folder):
        # Under the trial's own name, so that a resumed trial is not compared with itself.
        rungs.may_continue(trial_name(changes), epoch, dev)
    return rungs


# Ray starts the actor again if its process or its node is lost; trials wait for it meanwhile.
@ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)
class SharedRungs:
    """An actor that holds the rungs for all trials; wherever it starts, it reads what the sweep has measured so far."""

    def __init__(self, folder: Artifact, epochs: int) -> None:
        self._rungs = restored_rungs(folder, epochs)

    def may_continue(self, name: str, epoch: int, dev: float) -> bool:
        """Return whether a trial is good enough to continue."""
        return self._rungs.may_continue(name, epoch, dev)


def early_stopping(space: Space, folder: Artifact, epochs: int, cost: bool) -> Any:
    """Return the actor that trials ask, or None if no trial may be stopped: in a grid, with two objectives, or if the
    length of the training is swept."""
    length = next((key for key in (EPOCHS, STEPS) if key in space.dimensions), None)
    if length and not (space.grid or cost):
        # After the same epoch, a short training is at its end, while a long one still has a high learning rate.
        say(f"{length} is swept, so no trial is stopped early: trainings of two lengths cannot be compared half-way")
    return None if space.grid or cost or length else SharedRungs.remote(folder, epochs)  # type: ignore[attr-defined]
