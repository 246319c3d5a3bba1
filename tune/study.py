"""The study: every trial of a sweep, on storage beside the artifacts, so that a killed sweep forgets nothing."""

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
from tune.busy import Busy
from tune.spaces import SEED, Changes

FILE, NAME = "study.jsonl", "sweep"
DEV, COST = "dev", "ms_per_query"
"""What is measured: training.metric on dev, and the time to score one query's candidates."""

GPUS = "gpus"

STATES = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "stopped early",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}


class StudyFile(BaseJournalBackend):
    """Optuna's journal as one file of an artifact: whole after every entry, on any storage; for one sweep at a time."""

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
            there = self._folder.filesystem.info(self._folder.path(FILE), refresh=True)["size"]
            if there != sum(map(len, self._lines)):
                raise _another(self._folder)
        lines = [*self._lines, *(json.dumps(entry).encode() + b"\n" for entry in logs)]
        # Rewritten, not appended to: a kill in the middle of a line would leave a file that nobody can read.
        with self._folder.create(FILE) as stream:
            stream.writelines(lines)
        self._lines = lines


def open_storage(folder: Artifact) -> JournalStorage:
    """Return where a sweep's study is kept."""
    return JournalStorage(StudyFile(folder))


def open_study(storage: JournalStorage, cost: bool) -> Study:
    """Return the study, a new one if there is none; one that is there is not written to."""
    if storage.get_all_studies():
        return optuna.load_study(storage=storage, study_name=NAME)
    directions = [StudyDirection.MAXIMIZE, *([StudyDirection.MINIMIZE] if cost else [])]
    return optuna.create_study(storage=storage, study_name=NAME, directions=directions)


@dataclass(frozen=True)
class Record:
    """One trial, as a person wants to see it."""

    number: int
    state: str
    changes: Changes
    dev: float | None
    reason: str = ""
    """Why it failed, in a sentence."""
    facts: dict[str, Any] = field(default_factory=dict)
    cost: float | None = None

    @property
    def finished(self) -> bool:
        return self.state == STATES[TrialState.COMPLETE]


def records(study: Study) -> list[Record]:
    """Return every trial that was asked for, in order."""
    return [_record(trial) for trial in study.get_trials(deepcopy=False)]


def _record(trial: FrozenTrial) -> Record:
    measured = [value for _, value in sorted(trial.intermediate_values.items())]
    values = trial.values or measured[-1:]
    facts = {name: value for name, value in trial.user_attrs.items() if name != "reason"}
    changes = trial.params or trial.system_attrs.get("fixed_params", {})
    dev, cost = values[0] if values else None, values[1] if len(values) > 1 else None
    # A driver killed between the reason and the end leaves one to a trial that may yet finish.
    reason = trial.user_attrs.get("reason", "") if trial.state == TrialState.FAIL else ""
    return Record(trial.number, STATES[trial.state], changes, dev, reason, facts, cost)


def enqueue(study: Study, points: Iterable[Changes]) -> None:
    """Let points be tried next, in order, but for those that were let before."""
    # Optuna's own comparison takes seeds for the same that differ by a hundred-thousandth.
    there = [trial.system_attrs.get("fixed_params") for trial in study.get_trials(deepcopy=False)]
    for point in points:
        if point not in there:
            study.enqueue_trial(point)


def _another(folder: Artifact) -> StorageError:
    return StorageError(f"Another sweep writes to {folder.url}/{FILE}: wait for it, or end it.")


def num_told(study: Study) -> int:
    """Return how many trials are over, whatever became of them."""
    return sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False))


def trainings(found: Iterable[Record]) -> list[Record]:
    """Return the finished trials, of those with the same settings the first: the others only found its model there."""
    first: dict[str, Record] = {}
    for record in found:
        if record.finished:
            first.setdefault(trial_name(record.changes), record)
    return list(first.values())


def trial_name(changes: Changes) -> str:
    """Return what trials with the same settings have in common."""
    return json.dumps(changes, sort_keys=True)


def best(found: Sequence[Record]) -> Record | None:
    """Return the best finished trial; where seeds are swept, one of the settings that are best over their seeds."""
    groups: dict[str, list[Record]] = {}
    for record in trainings(found):
        groups.setdefault(trial_name(without_seed(record.changes)), []).append(record)
    if not groups:
        return None
    return max(groups.values(), key=lambda group: mean_dev(group))[0]


def without_seed(changes: Changes) -> Changes:
    """Return the settings a trial shares with its repetitions."""
    return {key: value for key, value in changes.items() if key != SEED}


def mean_dev(group: Sequence[Record]) -> float:
    """Return the mean dev figure of some trials."""
    values = [record.dev for record in group if record.dev is not None]
    return sum(values) / len(values) if values else -math.inf


def add_busy(study: Study, seen: Busy) -> None:
    """Keep what was seen of the GPUs, with what earlier starts of the sweep had seen."""
    if seen.looks:
        study.set_user_attr(GPUS, busy_of(study).and_then(seen))


def busy_of(study: Study) -> Busy:
    """Return what all starts that ended saw of the GPUs."""
    return Busy(*study.user_attrs.get(GPUS, ()))


def settings_text(changes: Changes, *, exact: bool = True) -> str:
    """Return settings as --set takes them, to the last digit unless they are only looked at."""
    text = str if exact else value_text
    return " ".join(f"{key}={'null' if value is None else text(value)}" for key, value in changes.items())


def value_text(value: Any) -> str:
    """Return a value in as many digits as one wants to read."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
