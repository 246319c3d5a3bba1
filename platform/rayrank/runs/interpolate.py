"""Interpolate: a combiner that adds the scores of several runs, each normalised in a query."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pydantic import Field, ValidationInfo, field_validator

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import DEV
from rayrank.core.run_kinds import RunInMaking
from rayrank.data.qrels import qrels_of
from rayrank.measure.metrics import Measure
from rayrank.runs.combiner import Combiner, CombinerSettings, split_rows
from rayrank.scores.interpolation import Interpolation, Normalization, Weights, WeightSearch


class InterpolateSettings(CombinerSettings):
    """Which runs are added, and how much each of them counts."""

    weight: float | tuple[float, ...] | None = Field(
        default=None,
        description="weight of the second run if there are two; otherwise a list with one weight per run; if empty, "
        "the best on dev",
    )
    normalize: Normalization = Field(
        default="min-max",
        description="how scores are made comparable: min-max scales to 0-1, z-score uses mean and deviation, rank uses "
        "the order only",
    )

    @field_validator("weight", mode="before")
    @classmethod
    def _one_per_run(cls, value: Any, info: ValidationInfo) -> float | tuple[float, ...] | None:
        if value is None:
            return None
        num_runs = len(info.data.get("of", ()))
        weights = tuple(value) if isinstance(value, list | tuple) else (value,)
        try:
            found = tuple(float(each) for each in weights)
        except (TypeError, ValueError):
            found = (-1.0,)
        if not all(0 <= each <= 1 for each in found):
            raise ValueError("a weight is a number from 0 to 1")
        if not isinstance(value, list | tuple) and num_runs <= 2:
            return found[0]
        if len(found) != num_runs or not any(found):
            raise ValueError(f"{num_runs} runs need a list of {num_runs} weights, at least one of them above 0")
        return found

    def weights(self) -> Weights | None:
        """Return a weight for each run, which add up to 1; None if they are tuned on dev."""
        if isinstance(self.weight, tuple):
            return tuple(weight / sum(self.weight) for weight in self.weight)
        return None if self.weight is None else (1 - self.weight, self.weight)


class Interpolate(Combiner):
    """The weighted sum of the runs' normalised scores, for every passage that one of the runs has.

    A passage that a run does not have gets 0 from it, or the run's lowest score in the query if z-scores are added.
    The manifest has the weight and, for two runs, the dev metric at each weight tried. Each half of the dev queries is
    scored with the weight that is best on the other half, so that dev metrics are not too high.
    """

    version = 2
    Settings = InterpolateSettings

    def key(self, settings: InterpolateSettings, config: PipelineConfig) -> dict[str, Any]:
        metric = {"metric": config.training.metric} if settings.weight is None else {}
        return {**super().key(settings, config), **metric}

    def is_worth_making(self, settings: InterpolateSettings, config: PipelineConfig) -> bool:
        has_all_scores = len(_with_scores(settings, config)) == len(settings.of)
        return settings.weight is not None or has_all_scores or self.is_first_stage(settings, config)

    def check_train(self, name: str, settings: InterpolateSettings) -> None:
        if settings.weight is None:
            equal = f"[{', '.join('1' * len(settings.of))}]"
            raise ConfigError(
                f"runs.{name}.weight is empty, and weights are not tuned for a run on the training queries: set it, as "
                f"in runs.{name}.weight={equal}."
            )

    def make(self, run: RunInMaking) -> dict[str, Any]:
        settings, config = run.settings, run.config
        is_first_stage = self.is_first_stage(settings, config)
        among = _with_scores(settings, config)
        search = _search(run) if settings.weight is None and len(among) > 1 else None
        weights = settings.weights() or _alone(settings, among)
        own: dict[str, Weights] = {}
        if search:
            weights, own = search.best(among), search.cross_fitted(among)

        def combine(tables: Sequence[pa.Table], split: str) -> pa.Table:
            pairs, depth = Interpolation(tables, settings.normalize), self.depth(settings, config, split)
            return pairs.run(weights, own if split == DEV else None, depth, is_first_stage)

        facts = self.combine(run, combine)
        curve = search.curve() if search and len(weights) == 2 else {}
        return {
            **facts,
            "weight": weights[1] if len(weights) == 2 else list(weights),
            config.training.metric: {f"{weight:.2f}": value for weight, value in curve.items()},
            "findings": [_finding(run, weights, search), *facts["findings"]],
        }


def _with_scores(settings: InterpolateSettings, config: PipelineConfig) -> list[int]:
    """Return the positions in `of` of the runs that have scores."""
    return [place for place, name in enumerate(settings.of) if flow.run_named(name, config)[2].has_scores]


def _alone(settings: InterpolateSettings, among: Sequence[int]) -> Weights:
    """Return the weight 1 for the first run with scores, and 0 for the others."""
    return tuple(float(place == [*among, 0][0]) for place in range(len(settings.of)))


def _search(run: RunInMaking) -> WeightSearch | None:
    """Return the search for weights on dev; None if no run has rows there."""
    if DEV not in run.splits or not any(map(len, rows := split_rows(run, DEV))):
        return None
    qrels = qrels_of(run.store.require("corpus", run.config), DEV)
    return Interpolation(rows, run.settings.normalize).search(qrels, Measure.of(run.config))


def _finding(run: RunInMaking, weights: Weights, search: WeightSearch | None) -> str:
    titles = [flow.title(name, run.config) for name in run.settings.of]
    shares = ", ".join(f"{title} {weight:.2f}" for title, weight in zip(titles, weights, strict=True))
    if search:
        second = f"{titles[1]} has the weight {weights[1]:.2f}, which is"
        share = second if len(weights) == 2 else f"the weights are {shares}, the"
        alone = ", ".join(
            f"{title} alone {'has ' if not place else ''}{search.mean(search.alone(place)):.4f}"
            for place, title in enumerate(titles)
        )
        best = f"{run.config.training.metric} {search.mean(weights):.4f}; {alone}"
        return f"{run.name}: {share} best on {DEV}: {best}"
    if run.settings.weight is not None:
        share = f"{titles[1]} has the weight {weights[1]:g}" if len(weights) == 2 else f"the weights are {shares}"
        return f"{run.name}: {share}, as runs.{run.name}.weight says"
    scored = _with_scores(run.settings, run.config)
    unscored = ", ".join(title for place, title in enumerate(titles) if place not in scored)
    first = titles[weights.index(1.0)]
    if unscored:
        return f"{run.name}: {first} alone, since {unscored} has no scores"
    others = " and ".join(title for title in titles if title != first)
    return f"{run.name}: {first} alone, since no {DEV} candidates exist to tune the weight of {others} on"
