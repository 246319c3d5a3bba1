"""What studies on the same storage found: what each part is worth, and which settings are better."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import optuna
import pyarrow.compute as pc
import yaml
from optuna.importance import FanovaImportanceEvaluator, get_param_importances
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import as_file
from rayrank.stages.report.belonging import studies_of

MOST_TRIALS = 400
BEST, STUDY = "best.yaml", "study.jsonl"
FEWEST_TRIALS = 4
"""Finished trials that the importance of settings needs."""


def ablations(config: PipelineConfig, store: Store) -> list[dict[str, Any]]:
    """Return the tables that `jobs.ablate` made for this configuration, of equal rows the one with the most seeds."""
    kept: dict[str, dict[str, Any]] = {}
    for table in studies_of("ablation", "table.json", config, store):
        rows = json.dumps([table["reference"], sorted(row["name"] for row in table["rows"])])
        if rows not in kept or _num_seeds(table) > _num_seeds(kept[rows]):
            kept[rows] = table
    return list(kept.values())


def _num_seeds(table: dict[str, Any]) -> int:
    return int(max(row["num_seeds"] for row in table["rows"]))


def newest(folder: str, file: str, config: PipelineConfig, store: Store) -> dict[str, Any] | None:
    """Return the newest study of a kind that was made for this configuration; None without one."""
    return next(iter(studies_of(folder, file, config, store)), None)


def sweeps(config: PipelineConfig, store: Store) -> list[dict[str, Any]]:
    """Return the finished trials of every sweep over the same dataset, the best first."""
    dataset, found = _dataset(as_file(config)), []
    for folder in store.folders("sweeps"):
        if not folder.exists(BEST):
            continue
        with folder.open(BEST) as stream:
            best = yaml.safe_load(stream)
        dev = f"dev {best['training']['metric']}"
        if _dataset(best) != dataset:
            continue
        trials = folder.read_table("trials.parquet")
        trials = trials.filter(pc.and_(pc.is_valid(trials[dev]), pc.equal(trials["state"], "finished")))
        trials = trials.sort_by([(dev, "descending")])[:MOST_TRIALS]
        settings = [name for name in trials.column_names if "." in name]
        rows = [{"trial": row["trial"], "dev": row[dev], "settings": {name: row[name] for name in settings}}
                for row in trials.to_pylist()]  # fmt: skip
        found.append({
            "key": folder.key, "metric": best["training"]["metric"], "settings": settings, "trials": rows,
            "importance": _importance(folder, settings),
        })  # fmt: skip
    return found


class _Journal(BaseJournalBackend):
    """Optuna's journal of a sweep, which is only read."""

    def __init__(self, folder: Artifact) -> None:
        with folder.open(STUDY) as stream:
            self._entries = [json.loads(line) for line in stream]

    def read_logs(self, log_number_from: int) -> Iterable[dict[str, Any]]:
        return self._entries[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        raise NotImplementedError


def _importance(folder: Artifact, settings: Sequence[str]) -> dict[str, float] | None:
    """Return the share of the variance of the dev metric that each setting explains, as in the sweep's own plot.

    None where the trials are too few or do not differ, and where the sweep has a second objective.
    """
    study = optuna.load_study(study_name=None, storage=JournalStorage(_Journal(folder)))
    values = [trial.value for trial in study.get_trials(states=[optuna.trial.TrialState.COMPLETE])] if (
        len(study.directions) == 1
    ) else []  # fmt: skip
    swept = [name for name in settings if name != "training.seed"]
    if len(swept) < 2 or len(values) < FEWEST_TRIALS or len(set(values)) < 2:
        return None
    return dict(get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=0), params=swept))


def _dataset(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values["dataset"].items() if name != "fingerprint"}
