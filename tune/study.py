"""The study of a sweep: every trial, in a file next to the artifacts, so that a killed sweep loses no result."""

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from rayrank.core.artifacts import Artifact
from rayrank.core.errors import StorageError
from rayrank.tune.gpu_usage import GpuUsage
from rayrank.tune.spaces import SEED, Changes

FILE, NAME = "study.jsonl", "sweep"
DEV, COST = "dev", "ms_per_query"
"""The objectives: training.metric on the dev set, and the milliseconds to score one query's candidates."""

GPUS = "gpus"

STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped early",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


class StudyFile(BaseJournalBackend):
    """Optuna's journal as one file on any storage, complete after every entry, for one writer at a time."""

    def __init__(self, folder: Artifact) -> None:
        self._folder = folder
        self._lines: list[bytes] = []
        if folder.exists(FILE):
            with folder.open(FILE) as stream:
                self._lines = list(stream)

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return [json.loads(line) for line in self._lines[log_number_from:]]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with suppress(FileNotFoundError):
            size = self._folder.filesystem.info(self._folder.path(FILE), refresh=True)["size"]
            if size != sum(map(len, self._lines)):
                raise _in_use(self._folder)
        lines = [*self._lines, *(json.dumps(entry).encode() + b"\n" for entry in logs)]
        # Rewritten, because a process that is killed while it appends would leave an unreadable last line.
        with self._folder.create(FILE) as stream:
            stream.writelines(lines)
        self._lines = lines


def open_storage(folder: Artifact) -> JournalStorage:
    """Return the storage of a sweep's study."""
    return JournalStorage(StudyFile(folder))


def open_study(storage: JournalStorage, cost: bool) -> Study:
    """Return the study, or create it; opening an existing study does not write to it."""
    if storage.get_all_studies():
        return optuna.load_study(storage=storage, study_name=NAME)
    directions = [StudyDirection.MAXIMIZE, *([StudyDirection.MINIMIZE] if cost else [])]
    return optuna.create_study(storage=storage, study_name=NAME, directions=directions)


def measurements(folder: Artifact) -> list[tuple[Changes, int, float]]:
    """Return every dev measurement of a sweep, as the trial's settings, the epoch and the value, the oldest first."""
    journal = StudyFile(folder)
    (study,) = JournalStorage(journal).get_all_studies()
    trials = JournalStorage(journal).get_all_trials(study._study_id, deepcopy=False)
    settings = {trial._trial_id: trial.params for trial in trials}
    # Only the journal knows the order: a trial has no time for each of its measurements.
    entries = (entry for entry in journal.read_logs(0) if "intermediate_value" in entry)
    return [(settings[entry["trial_id"]], entry["step"], entry["intermediate_value"]) for entry in entries]


@dataclass(frozen=True)
class Record:
    """One trial, for tables and plots."""

    number: int
    state: str
    changes: Changes
    dev: float | None
    reason: str = ""
    """Why the trial failed, in one sentence."""
    facts: dict[str, Any] = field(default_factory=dict)
    cost: float | None = None

    @property
    def finished(self) -> bool:
        return self.state == STATES[TrialState.COMPLETE]


def records(study: Study) -> list[Record]:
    """Return every trial of the study, in order."""
    return [_record(trial) for trial in study.get_trials(deepcopy=False)]


def _record(trial: FrozenTrial) -> Record:
    measured = [value for _, value in sorted(trial.intermediate_values.items())]
    values = trial.values or measured[-1:]
    facts = {name: value for name, value in trial.user_attrs.items() if name != "reason"}
    changes = trial.params or trial.system_attrs.get("fixed_params", {})
    dev, cost = values[0] if values else None, values[1] if len(values) > 1 else None
    # A driver that was killed after it wrote a reason leaves the trial running, and the trial may still finish.
    reason = trial.user_attrs.get("reason", "") if trial.state == TrialState.FAIL else ""
    return Record(trial.number, STATES[trial.state], changes, dev, reason, facts, cost)


def enqueue(study: Study, points: Iterable[Changes]) -> None:
    """Queue settings to be tried next, in order, except those that were queued before."""
    # Not by Optuna's skip_if_exists: it compares numbers approximately, so that large seeds seem equal.
    queued = [trial.system_attrs.get("fixed_params") for trial in study.get_trials(deepcopy=False)]
    for point in points:
        if point not in queued:
            study.enqueue_trial(point)


def _in_use(folder: Artifact) -> StorageError:
    return StorageError(f"Another sweep writes to {folder.url}/{FILE}: wait for it, or stop it.")


def num_ended(study: Study) -> int:
    """Return how many trials have finished, failed or been stopped."""
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def trainings(found: Iterable[Record]) -> list[Record]:
    """Return the finished trials; of trials with equal settings only the first, whose model the others reuse."""
    first: dict[str, Record] = {}
    for record in found:
        if record.finished:
            first.setdefault(trial_name(record.changes), record)
    return list(first.values())


def trial_name(changes: Changes) -> str:
    """Return a name for a trial's settings, equal for equal settings."""
    return json.dumps(changes, sort_keys=True)


def best(found: Sequence[Record]) -> Record | None:
    """Return the best finished trial; if seeds are swept, the first trial of the settings with the best mean."""
    groups: dict[str, list[Record]] = {}
    for record in trainings(found):
        groups.setdefault(trial_name(without_seed(record.changes)), []).append(record)
    if not groups:
        return None
    return max(groups.values(), key=lambda group: mean_dev(group))[0]


def without_seed(changes: Changes) -> Changes:
    """Return the settings without the seed, which repetitions of a trial have in common."""
    return {key: value for key, value in changes.items() if key != SEED}


def mean_dev(group: Sequence[Record]) -> float:
    """Return the mean dev metric of some trials."""
    values = [record.dev for record in group if record.dev is not None]
    return sum(values) / len(values) if values else -math.inf


def add_gpu_usage(study: Study, usage: GpuUsage) -> None:
    """Add the GPU usage of this start of the sweep to that of earlier starts."""
    if usage.samples:
        study.set_user_attr(GPUS, total_gpu_usage(study).plus(usage))


def total_gpu_usage(study: Study) -> GpuUsage:
    """Return the GPU usage of all starts of the sweep that were not killed."""
    return GpuUsage(*study.user_attrs.get(GPUS, ()))


def settings_text(changes: Changes, *, exact: bool = True) -> str:
    """Return settings in the form of --set; without `exact`, numbers are rounded for display."""
    text = str if exact else value_text
    return " ".join(f"{key}={'null' if value is None else text(value)}" for key, value in changes.items())


def value_text(value: Any) -> str:
    """Return a value as text, numbers rounded to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
