"""Interpolate: a combiner that adds the scores of two runs of the same candidates, each scaled to 0-1 in a query."""

from typing import Any

import pyarrow.compute as pc
from pydantic import Field

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import StorageError
from rayrank.core.run_kinds import RunInMaking, RunKind, RunSettings
from rayrank.measure.metrics import Measure
from rayrank.scores.interpolation import Interpolation

TUNED_ON = "dev"


class InterpolateSettings(RunSettings):
    """Which two runs are added, and how much the second one counts."""

    of: tuple[str, str]
    weight: float | None = Field(
        default=None, ge=0, le=1, description="of the second run; the weight that is best on dev if empty"
    )


class Interpolate(RunKind):
    """Scores (1 - weight) * first + weight * second. Its manifest has the weight, and dev's figure at every weight.

    Half of the dev queries get the weight that is best for the other half, so that figures on dev are not flattered.
    """

    Settings = InterpolateSettings

    def inputs(self, settings: InterpolateSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus",)

    def key(self, settings: InterpolateSettings, config: PipelineConfig) -> dict[str, Any]:
        metric = {"metric": config.training.metric} if settings.weight is None else {}
        return {**super().key(settings, config), **metric}

    def is_worth_making(self, settings: InterpolateSettings, config: PipelineConfig) -> bool:
        return settings.weight is not None or not _without_scores(settings, config)

    def make(self, run: RunInMaking) -> dict[str, Any]:
        splits = {split: _pairs(run, split) for split in run.splits if run.has(run.settings.of[0], split)}
        weight, search = run.settings.weight, None
        if weight is None and not _without_scores(run.settings, run.config) and TUNED_ON in splits:
            judgments = run.store.require("corpus", run.config).read_table("judgments.parquet")
            qrels = judgments.filter(pc.equal(judgments["split"], TUNED_ON))
            search = splits[TUNED_ON].search(qrels, Measure.of(run.config))
            weight = search.best()
        weight = weight or 0.0
        for split, pairs in splits.items():
            run.write(split, pairs.run(weight, search.cross_fitted() if search and split == TUNED_ON else None))
        curve = search.curve() if search else {}
        measured = {f"{each:.2f}": value for each, value in curve.items()}
        return {"weight": weight, run.config.training.metric: measured, "findings": [_finding(run, weight, curve)]}


def _without_scores(settings: InterpolateSettings, config: PipelineConfig) -> str:
    """Return the title of a run whose scores carry no information, if one of the two is such a run."""
    kinds = {name: flow.run_named(name, config)[2] for name in settings.of}
    return next((flow.title(name, config) for name, kind in kinds.items() if not kind.has_scores), "")


def _pairs(run: RunInMaking, split: str) -> Interpolation:
    names = run.settings.of
    first, second = (run.rows(name, split) for name in names)
    if not all(first[column].equals(second[column]) for column in ("query_id", "passage_id")):
        raise StorageError(
            f"The runs {names[0]} and {names[1]} rank different candidates in {split}: interpolate runs of the same "
            f"candidates, or delete the folder of one of them and start again."
        )
    return Interpolation(first, second)


def _finding(run: RunInMaking, weight: float, curve: dict[float, float]) -> str:
    first, second = (flow.title(name, run.config) for name in run.settings.of)
    if curve:
        metric = run.config.training.metric
        return (
            f"{run.name}: {second} has the weight {weight:.2f}, which is best on {TUNED_ON}: {metric} "
            f"{curve[weight]:.4f}; {first} alone has {curve[0.0]:.4f}, {second} alone {curve[1.0]:.4f}"
        )
    if run.settings.weight is not None:
        return f"{run.name}: {second} has the weight {weight:g}, as runs.{run.name}.weight says"
    if unscored := _without_scores(run.settings, run.config):
        return f"{run.name}: {first} alone, since {unscored} has no scores"
    return f"{run.name}: {first} alone, for want of {TUNED_ON} candidates to find the weight of {second} on"
