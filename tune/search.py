"""Ray Tune's search on top of a study that outlives the driver."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optuna.samplers import TPESampler
from optuna.storages import JournalStorage
from optuna.study import Study
from optuna.trial import Trial, TrialState
from ray.tune.search.optuna import OptunaSearch

from rayrank.core.progress import say
from tune.spaces import Changes, Space
from tune.study import COST, DEV, NAME, open_study, records, settings_text

STARTUP = 8
"""Trials drawn at random before TPE has enough to go by."""

EPOCH, OUTCOME, REASON = "epoch", "outcome", "reason"
"""What a trial reports besides its figures."""
DIED = "The trial's own process died: it was killed, or the machine ran out of memory."
_RAYS_STEP = "training_iteration"

Makes = Callable[[Changes], set[tuple[str, str]]]
"""From a trial's settings to the artifacts that are not there yet and that it would make."""


class StudySearch(OptunaSearch):
    """OptunaSearch that goes on with the trials a killed driver left, and that never makes one artifact twice at once.

    Ray Tune's own way to go on (Tuner.restore) reads a snapshot some seconds old; the study is written at every step.
    """

    def __init__(self, space: Space, storage: JournalStorage, cost: bool, seed: int, makes: Makes, dev: str) -> None:
        metric, mode = ([DEV, COST], ["max", "min"]) if cost else (DEV, "max")
        super().__init__(space.suggest, metric=metric, mode=mode, study_name=NAME, storage=storage)
        self._dimensions, self._first_seed, self._makes, self._dev = space, seed, makes, dev
        self._busy: dict[str, set[tuple[str, str]]] = {}
        # Running, says the study, but not here: the last driver died under them.
        left = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        self._waiting = [self._drawn(trial.number, trial._trial_id) for trial in left]

    def _setup_study(self, mode: str | list[str]) -> None:
        self._ot_study = open_study(self._storage, cost=isinstance(mode, list))  # type: ignore[assignment, arg-type]

    @property
    def study(self) -> Study:
        assert self._ot_study is not None
        return self._ot_study

    def suggest(self, trial_id: str) -> Changes | None:
        if not self._waiting:
            self._waiting.append(self._drawn(len(self.study.get_trials(deepcopy=False))))
        taken = set().union(*self._busy.values())
        for trial in self._waiting:
            making = self._makes(self._dimensions.suggest(trial))
            if not making & taken:
                self._waiting.remove(trial)
                self._ot_trials[trial_id], self._busy[trial_id] = trial, making
                return super().suggest(trial_id)
        return None  # until what they wait for is made

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if EPOCH in result:
            # A resumed trial reports from where it is, while Ray counts from one again.
            super().on_trial_result(trial_id, {**result, _RAYS_STEP: result[EPOCH]})

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        trial, result = self._ot_trials[trial_id], result or {}
        self._busy.pop(trial_id, None)
        values = [result.get(name, math.nan) for name in ([DEV, COST] if isinstance(self.metric, list) else [DEV])]
        if error:
            self._failed(trial, DIED)
        elif result.get(OUTCOME) == "failed":
            self._failed(trial, result[REASON])
        elif result.get(OUTCOME) == "finished" and not all(map(math.isfinite, values)):
            self._failed(trial, f"The trial measured {values[0]}, which is not a number.")
        elif result.get(OUTCOME) == "finished":
            for name, fact in result.items():
                if name.startswith("fact/"):
                    trial.set_user_attr(name.removeprefix("fact/"), fact)
            self.study.tell(trial, values)
        elif result.get(OUTCOME) == "stopped":
            self.study.tell(trial, state=TrialState.PRUNED)
        else:
            return  # interrupted: it stays a running trial, and the next start goes on with it
        self._completed_trials.add(trial_id)
        say(told(self.study, trial.number, self._dev))

    def save(self, checkpoint_path: str) -> None:
        # The study is on storage already; Ray only wants to see a file.
        Path(checkpoint_path).touch()

    def _drawn(self, number: int, trial_id: int | None = None) -> Trial:
        """Return a new trial, or one that a killed driver may have left half drawn, with all its values."""
        # What is drawn depends on the trial's number, not on how often the driver was started.
        self.study.sampler = TPESampler(
            multivariate=True,
            constant_liar=True,
            n_startup_trials=STARTUP,
            seed=(self._first_seed * 1_000_003 + number) % 2**32,
        )
        trial = self.study.ask() if trial_id is None else Trial(self.study, trial_id)
        self._dimensions.suggest(trial)
        return trial

    def _failed(self, trial: Trial, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        self.study.tell(trial, state=TrialState.FAIL)


def told(study: Study, number: int, dev: str) -> str:
    """Return a line on how a trial ended; `dev` names the metric."""
    record = records(study)[number]
    ended = record.reason or (f"{dev} {record.dev:.4f}" if record.dev is not None else "nothing measured")
    return f"trial {number} {record.state}: {ended} ({settings_text(record.changes, exact=False)})"
