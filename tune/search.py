"""Ray Tune's search algorithm on top of a study on storage, which survives the driver."""

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
from rayrank.tune.spaces import Changes, Space
from rayrank.tune.study import COST, DEV, NAME, open_study, records, settings_text

RANDOM_TRIALS = 8
"""Trials with random settings before TPE has enough results to model."""

EPOCH, OUTCOME, REASON = "epoch", "outcome", "reason"
"""Keys of a trial's report besides its metrics."""

DIED = "The trial's own process died: it was killed, or the machine ran out of memory."
_RAY_STEP_KEY = "training_iteration"

MissingArtifacts = Callable[[Changes], set[tuple[str, str]]]
"""Returns the artifacts (stage and key) that a trial with these settings would have to make."""


class StudySearch(OptunaSearch):
    """OptunaSearch that resumes the trials of a killed driver, and lets no two trials make the same artifact at once.

    Ray Tune's own Tuner.restore reads a snapshot that is some seconds old; the study is written at every step.
    """

    def __init__(
        self, space: Space, storage: JournalStorage, cost: bool, seed: int, missing: MissingArtifacts, dev: str
    ) -> None:
        metric, mode = ([DEV, COST], ["max", "min"]) if cost else (DEV, "max")
        super().__init__(space.suggest, metric=metric, mode=mode, study_name=NAME, storage=storage)
        self._dimensions, self._first_seed, self._missing, self._dev = space, seed, missing, dev
        self._being_made: dict[str, set[tuple[str, str]]] = {}
        self._interrupted: dict[str, str] = {}
        """Why the trials that are started again were interrupted."""
        # The study lists these trials as running because the last driver died.
        left = self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        self._waiting = [self._sampled(trial.number, trial._trial_id) for trial in left]

    def _setup_study(self, mode: str | list[str]) -> None:
        self._ot_study = open_study(self._storage, cost=isinstance(mode, list))  # type: ignore[assignment, arg-type]

    @property
    def study(self) -> Study:
        assert self._ot_study is not None
        return self._ot_study

    def suggest(self, trial_id: str) -> Changes | None:
        if not self._waiting:
            self._waiting.append(self._sampled(len(self.study.get_trials(deepcopy=False))))
        taken = set().union(*self._being_made.values())
        for trial in self._waiting:
            making = self._missing(self._dimensions.suggest(trial))
            if not making & taken:
                self._waiting.remove(trial)
                self._ot_trials[trial_id], self._being_made[trial_id] = trial, making
                return super().suggest(trial_id)
        return None  # Ray Tune asks again once another trial has ended

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if REASON in result:
            self._interrupted[trial_id] = result[REASON]
        elif EPOCH in result:
            # A resumed trial reports its true epoch, while Ray's own counter starts at one again.
            super().on_trial_result(trial_id, {**result, _RAY_STEP_KEY: result[EPOCH]})

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        trial, result = self._ot_trials[trial_id], result or {}
        self._being_made.pop(trial_id, None)
        values = [result.get(name, math.nan) for name in ([DEV, COST] if isinstance(self.metric, list) else [DEV])]
        if error:
            self._failed(trial, self._interrupted.get(trial_id, DIED))
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
            return  # interrupted: the trial stays listed as running, and the next start of the sweep resumes it
        self._completed_trials.add(trial_id)
        say(end_message(self.study, trial.number, self._dev))

    def save(self, checkpoint_path: str) -> None:
        # The study is already on storage; Ray only checks that the file exists.
        Path(checkpoint_path).touch()

    def _sampled(self, number: int, trial_id: int | None = None) -> Trial:
        """Return a trial with all its values: a new one, or one that a killed driver may have left without some."""
        # Seeded by the trial's number, so that the values do not depend on restarts of the driver.
        self.study.sampler = TPESampler(
            multivariate=True,
            constant_liar=True,
            n_startup_trials=RANDOM_TRIALS,
            seed=(self._first_seed * 1_000_003 + number) % 2**32,
        )
        trial = self.study.ask() if trial_id is None else Trial(self.study, trial_id)
        self._dimensions.suggest(trial)
        return trial

    def _failed(self, trial: Trial, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        self.study.tell(trial, state=TrialState.FAIL)


def end_message(study: Study, number: int, dev: str) -> str:
    """Return one line on how a trial ended; `dev` is the name of the dev metric."""
    record = records(study)[number]
    result = record.reason or (f"{dev} {record.dev:.4f}" if record.dev is not None else "nothing measured")
    return f"trial {number} {record.state}: {result} ({settings_text(record.changes, exact=False)})"
