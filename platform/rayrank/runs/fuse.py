"""Fuse: a combiner that learns on dev how to join runs' scores with fields of the passages."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field, model_validator

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import DEV
from rayrank.core.run_kinds import RunInMaking
from rayrank.data.ids import Lookup
from rayrank.data.qrels import qrels_of
from rayrank.measure.metrics import JudgedRows, Measure, parse
from rayrank.runs.combiner import Combiner, CombinerSettings, split_rows
from rayrank.scores.fusion import (
    FUSION,
    Feature,
    Form,
    Fusion,
    Lists,
    feature_values,
    field_points,
    learn,
    learn_halves,
)
from rayrank.scores.interpolation import Normalization
from rayrank.scores.union import Scores, Union, Values

FEWEST_QUERIES = 5
"""Weights are learned only if each half of dev has this many queries with a relevant candidate."""


class FuseSettings(CombinerSettings):
    """Which features are fused, and how."""

    of: tuple[str, ...] = Field(min_length=1)
    fields: tuple[str, ...] = Field(default=(), description="fields of the passages, each also in dataset.fields")
    form: Form = Field(
        default="linear",
        description="linear: one weight per feature; lambdarank: LightGBM's trees, an optional package, for datasets "
        "with many judged dev queries",
    )
    normalize: Normalization = Field(
        default="min-max", description="how scores are made comparable, as in runs of kind interpolate"
    )

    @model_validator(mode="after")
    def _something_to_fuse(self) -> "FuseSettings":
        if len(self.of) + len(self.fields) < 2:
            raise ValueError("of and fields must name two features or more together")
        return self


class Fuse(Combiner):
    """Named features of every passage that one of the runs has, fused as dev prefers.

    Each half of the dev queries is scored with what the other half teaches, so that dev metrics are not too high; other
    splits are scored with what all dev queries teach, which fusion.json describes.
    """

    Settings = FuseSettings

    def inputs(self, settings: FuseSettings, config: PipelineConfig) -> tuple[str, ...]:
        unknown = [name for name in settings.fields if name not in config.dataset.fields]
        if unknown:
            known = ", ".join([*config.dataset.fields, *unknown])
            raise ConfigError(
                f"A run of kind fuse cannot have the field {unknown[0]}: dataset.fields does not name it; set "
                f"dataset.fields=[{known}], or leave it out."
            )
        if not settings.fields and not any(flow.run_named(name, config)[2].has_scores for name in settings.of):
            raise ConfigError(
                f"A run of kind fuse cannot have of=[{', '.join(settings.of)}]: none of these runs has scores; name "
                f"one that has, or fields."
            )
        return ("corpus", *(["passage_fields"] if settings.fields else []))

    def key(self, settings: FuseSettings, config: PipelineConfig) -> dict[str, Any]:
        return {**super().key(settings, config), "metric": config.training.metric}

    def check_train(self, name: str, settings: FuseSettings) -> None:
        raise ConfigError(
            f"The run {name} has no rows of the training queries: its kind fuse learns on {DEV}; name another."
        )

    def make(self, run: RunInMaking) -> dict[str, Any]:
        features = _Features(run)
        dev = _Dev.of(run, features)
        fusion, own = learn_halves(dev.query_ids, dev.learned) if dev else (_first_alone(run, features), {})
        run.artifact.write_json(FUSION, fusion.model_dump(mode="json"))
        is_first_stage = self.is_first_stage(run.settings, run.config)

        def combine(tables: Sequence[pa.Table], split: str) -> pa.Table:
            union, values = features.read(tables)
            scores = _scores(union, values, fusion, own if split == DEV else {})
            depth = self.depth(run.settings, run.config, split)
            return union.table(scores, range(len(tables)), depth, is_first_stage)

        facts = self.combine(run, combine)
        measured = dev.measured(fusion, own) if dev else {}
        return {
            **facts,
            "fusion": fusion.figures(),
            run.config.training.metric: measured,
            "findings": [_finding(run, fusion, measured), *facts["findings"]],
        }


class _Features:
    """Reads the features of a run's rows: runs that have scores, then fields."""

    def __init__(self, run: RunInMaking) -> None:
        settings, config = run.settings, run.config
        self._normalize = settings.normalize
        self._runs = [place for place, name in enumerate(settings.of) if flow.run_named(name, config)[2].has_scores]
        names = [flow.run_named(settings.of[place], config)[0] for place in self._runs]
        fields = []
        if settings.fields:
            table = run.store.require("passage_fields", config).read_table("fields.parquet")
            self._rows = Lookup(table["passage_id"])
            self._values = np.stack([table[name].to_numpy() for name in settings.fields], axis=1)
            points = map(field_points, self._values.T)
            fields = [
                Feature(name=name, kind="field", points=each)
                for name, each in zip(settings.fields, points, strict=True)
            ]
        self.named = (*(Feature(name=name, kind="run") for name in names), *fields)

    def read(self, tables: Sequence[pa.Table]) -> tuple[Union, Values]:
        """Return the union of the runs' rows, and its features."""
        union = Union.of(tables)
        fields = np.empty((len(union.pairs), 0))
        if any(feature.kind == "field" for feature in self.named):
            fields = self._values[self._rows(union.pairs["passage_id"])]
        return union, feature_values(union, self._runs, self.named, fields, self._normalize)


class _Dev:
    """The judged dev queries: their rows, features and gains."""

    def __init__(self, run: RunInMaking, features: _Features, union: Union, values: Values) -> None:
        self._run, self._metric = run, run.config.training.metric
        self._features, self._union, self._values = features.named, union, values
        qrels = qrels_of(run.store.require("corpus", run.config), DEV)
        self._judged = JudgedRows(qrels, union.pairs, Measure.of(run.config).relevant_from)
        self.query_ids = self._judged.query_ids
        number = {query_id: place for place, query_id in enumerate(self.query_ids)}
        of_query = np.array([number.get(query_id, -1) for query_id in union.query_ids], np.int64)[union.of_query]
        order = np.argsort(of_query, kind="stable")
        order = order[of_query[order] >= 0]
        self._lists = Lists(values[order], of_query[order], self._judged.gains()[order])

    @classmethod
    def of(cls, run: RunInMaking, features: _Features) -> "_Dev | None":
        """Return the dev queries; None if there are too few to learn from."""
        if DEV not in run.splits or not any(map(len, rows := split_rows(run, DEV))):
            return None
        found = cls(run, features, *features.read(rows))
        useful = np.unique(found._lists.of_query[found._lists.gains > 0])
        return found if np.bincount(useful % 2, minlength=2).min() >= FEWEST_QUERIES else None

    def learned(self, queries: NDArray[np.bool_]) -> Fusion:
        """Return what some of the judged queries teach."""
        settings = self._run.settings
        return learn(settings.form, settings.normalize, self._features, self._lists.of(queries))

    def measured(self, fusion: Fusion, own: Mapping[str, Fusion]) -> dict[str, float]:
        """Return the metric of the fused scores, and of each run's alone."""
        alone = {
            feature.name: self._values[:, place].astype(np.float32)
            for place, feature in enumerate(self._features)
            if feature.kind == "run"
        }
        fused = _scores(self._union, self._values, fusion, own)
        metric = {self._metric: parse(self._metric)}
        return {
            name: float(self._judged.measure(scores, metric).values[self._metric].mean())
            for name, scores in {self._run.name: fused, **alone}.items()
        }


def _scores(union: Union, values: Values, fusion: Fusion, own: Mapping[str, Fusion]) -> Scores:
    """Return the fused scores; queries in `own` are scored by a fusion of their own."""
    scores = fusion.scores(values)
    for other in {id(each): each for each in own.values()}.values():
        rows = np.array([own.get(query_id) is other for query_id in union.query_ids], np.bool_)[union.of_query]
        scores[rows] = other.scores(values[rows])
    return scores


def _first_alone(run: RunInMaking, features: _Features) -> Fusion:
    weights = tuple(float(not place) for place in range(len(features.named)))
    return Fusion(form="linear", normalize=run.settings.normalize, features=features.named, weights=weights)


def _finding(run: RunInMaking, fusion: Fusion, measured: Mapping[str, float]) -> str:
    """Return a sentence about what was learned."""
    if not measured:
        first = fusion.features[0]
        title = flow.title(first.name, run.config) if first.kind == "run" else f"the field {first.name}"
        return (
            f"{run.name}: no weights were learned, because one half of {DEV} has fewer than {FEWEST_QUERIES} "
            f"queries with a relevant candidate; passages are ranked by {title} alone"
        )
    what = f"the weights are {fusion.shares()}" if fusion.form == "linear" else f"trees read {fusion.shares()}"
    alone = ", ".join(
        f"{flow.title(name, run.config)} alone {value:.4f}" for name, value in measured.items() if name != run.name
    )
    return (
        f"{run.name}: {what}, learned on {DEV}: {run.config.training.metric} {measured[run.name]:.4f}, each "
        f"half of the queries scored with what the other half teaches; {alone}"
    )
