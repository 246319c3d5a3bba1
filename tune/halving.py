"""Which trials are worth going on with: ASHA's rungs, asked by the trials themselves.

Ray Tune would end a trial by killing its process, under which a training leaves its workers and their place behind; a
trial that asks can end its training in good order.
"""

from types import SimpleNamespace
from typing import Any

import ray
from optuna.study import Study
from ray.tune.schedulers import ASHAScheduler, TrialScheduler

from rayrank.core.progress import say
from tune.search import EPOCH
from tune.spaces import EPOCHS, STEPS, Space
from tune.study import DEV, trial_name

FACTOR = 2
"""Of the trials that reach a rung, one in so many goes on."""


class Rungs:
    """ASHA on dev after each epoch."""

    def __init__(self, epochs: int) -> None:
        self._asha = ASHAScheduler(
            time_attr=EPOCH, metric=DEV, mode="max", max_t=epochs, reduction_factor=FACTOR, stop_last_trials=False
        )
        self._known: dict[str, Any] = {}
        self._stopped: set[tuple[str, int]] = set()

    def goes_on(self, name: str, epoch: int, dev: float) -> bool:
        """Return whether a trial is among the better ones that came so far."""
        if name not in self._known:
            self._known[name] = SimpleNamespace(trial_id=name)
            self._asha.on_trial_add(None, self._known[name])  # type: ignore[arg-type]
        decision = self._asha.on_trial_result(None, self._known[name], {EPOCH: epoch, DEV: dev})  # type: ignore[arg-type]
        if decision == TrialScheduler.STOP:
            # Asked once more, ASHA would let it pass.
            self._stopped.add((name, epoch))
        return (name, epoch) not in self._stopped


def filled(study: Study, epochs: int) -> Rungs:
    """Return the rungs with what was measured before a restart, which still counts."""
    rungs = Rungs(epochs)
    for trial in study.get_trials(deepcopy=False):
        for epoch, dev in sorted(trial.intermediate_values.items()):
            # By the name it asks under: who goes on after a restart is not measured against itself.
            rungs.goes_on(trial_name(trial.params), epoch, dev)
    return rungs


@ray.remote(num_cpus=0)
class Ladder:
    """The rungs where all trials reach them."""

    def __init__(self, rungs: Rungs) -> None:
        self._rungs = rungs

    def goes_on(self, name: str, epoch: int, dev: float) -> bool:
        """Ask the rungs."""
        return self._rungs.goes_on(name, epoch, dev)


def ladder(space: Space, study: Study, epochs: int, cost: bool) -> Any:
    """Return what trials ask, or nothing: all points of a grid count, two aims have no order, nor have two lengths."""
    length = next((key for key in (EPOCHS, STEPS) if key in space.dimensions), None)
    if length and not (space.grid or cost):
        # After as many epochs a short training is at its end, and a long one's learning rate is still high.
        say(f"{length} is swept, so no trial is stopped early: trainings of other lengths cannot be compared half-way")
    return None if space.grid or cost or length else Ladder.remote(filled(study, epochs))  # type: ignore[attr-defined]
