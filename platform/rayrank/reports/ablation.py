"""The ablation: rows measured on the same queries, each compared with the full model."""

from collections.abc import Iterator, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from rayrank.core.config import EvaluateConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.measure.metrics import PerQuery
from rayrank.measure.significance import Comparison, Interval, compare, holm, mean_interval

ALL = "all"
"""The slice of all queries."""


@dataclass(frozen=True)
class Variant:
    """One row before the comparison: per split the metrics of one or several seeds, query by query."""

    name: str
    runs: Mapping[str, Sequence[PerQuery]]
    device_seconds: float | None = None
    """The cost of training."""
    pairs_per_second: float | None = None
    """The speed of scoring."""


@dataclass(frozen=True)
class Procedure:
    """The test and the resampling that all rows share."""

    test: Literal["randomisation", "t"] = "randomisation"
    resamples: int = 10_000
    seed: int = 13
    level: float = 0.95

    @classmethod
    def of(cls, settings: EvaluateConfig) -> "Procedure":
        """Return the procedure that a configuration asks for."""
        return cls(test=settings.test, resamples=settings.resamples, seed=settings.seed)


PROCEDURE = Procedure()


@dataclass(frozen=True)
class Measured:
    """One metric of one row over a slice, seeds averaged query by query; the reference has no comparison."""

    num_queries: int
    interval: Interval
    seed_means: list[float]
    comparison: Comparison | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class AblationRow:
    """A row of the table: measurements by split, metric and slice of the queries."""

    name: str
    num_seeds: int
    device_seconds: float | None
    pairs_per_second: float | None
    figures: dict[str, dict[str, dict[str, Measured]]]

    def figure(self, split: str, metric: str, part: str = ALL) -> Measured | None:
        return self.figures.get(split, {}).get(metric, {}).get(part)


@dataclass(frozen=True)
class Ablation:
    """The whole table; the first metric is the main one, which is also measured on slices."""

    reference: str
    rows: list[AblationRow]
    splits: list[str]
    metrics: list[str]
    slices: list[str]
    procedure: Procedure
    failed: dict[str, str] = field(default_factory=dict)
    """The rows whose training could not succeed, each with the reason."""

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        return TypeAdapter(Ablation).dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, value: object) -> "Ablation":
        """Return the table that `to_json` was called on."""
        return TypeAdapter(Ablation).validate_python(value)


@dataclass(frozen=True)
class _Column:
    """A column of the table: one metric over one slice of a split's queries, as indices."""

    split: str
    metric: str
    part: str
    queries: NDArray[np.int64]


def ablate(
    variants: Sequence[Variant],
    reference: str,
    slices: Mapping[str, AbstractSet[str]] | None = None,
    procedure: Procedure = PROCEDURE,
) -> Ablation:
    """Measure every row on the reference's queries and compare it, paired; slices are sets of query ids."""
    slices = slices or {}
    if ALL in slices:
        raise ConfigError(f"A slice of the queries is called {ALL!r}, which means every query: give it another name.")
    full = _reference(variants, reference)
    metrics = list(next(iter(full.runs.values()))[0].values)
    tables: dict[str, dict[str, dict[str, dict[str, Measured]]]] = {variant.name: {} for variant in variants}
    for column in _columns(full, metrics, slices):
        for name, figure in _measure(variants, full, column, procedure).items():
            tables[name].setdefault(column.split, {}).setdefault(column.metric, {})[column.part] = figure
    rows = [
        AblationRow(
            variant.name,
            max(map(len, variant.runs.values())),
            variant.device_seconds,
            variant.pairs_per_second,
            figures=tables[variant.name],
        )
        for variant in variants
    ]
    return Ablation(reference, rows, list(full.runs), metrics, list(slices), procedure)


def _reference(variants: Sequence[Variant], reference: str) -> Variant:
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names):
        raise ConfigError(f"Two of the rows {', '.join(names)} have the same name: give every row its own name.")
    if reference not in names:
        raise ConfigError(f"The reference row {reference!r} is not among the rows: name one of {', '.join(names)}.")
    full = variants[names.index(reference)]
    for variant in variants:
        if extra := variant.runs.keys() - full.runs.keys():
            raise DatasetError(
                f"The row {variant.name!r} has the split {min(extra)} and {reference!r} has not: measure both on it."
            )
    return full


def _columns(full: Variant, metrics: list[str], slices: Mapping[str, AbstractSet[str]]) -> Iterator[_Column]:
    for split, runs in full.runs.items():
        query_ids = runs[0].query_ids
        for metric in metrics:
            yield _Column(split, metric, ALL, np.arange(len(query_ids)))
        for name, members in slices.items():
            chosen = np.flatnonzero([query_id in members for query_id in query_ids])
            if len(chosen):
                yield _Column(split, metrics[0], name, chosen)


def _measure(variants: Sequence[Variant], full: Variant, column: _Column, procedure: Procedure) -> dict[str, Measured]:
    """Return each row's cell of a column, with p values corrected over the rows; rows without the split have none."""
    query_ids = full.runs[column.split][0].query_ids
    measured = [variant for variant in variants if variant.runs.get(column.split)]
    values = {variant.name: _values(variant, column, query_ids) for variant in measured}
    test, resamples, seed, level = procedure.test, procedure.resamples, procedure.seed, procedure.level
    base = values[full.name].mean(axis=0)
    others = [name for name in values if name != full.name]
    comparisons = {name: compare(values[name].mean(axis=0), base, test, resamples, seed, level) for name in others}
    corrected = dict(zip(others, holm([comparisons[name].p_value for name in others]), strict=True))
    return {
        name: Measured(
            len(column.queries),
            mean_interval(seeds.mean(axis=0), resamples, seed, level),
            seeds.mean(axis=1).tolist(),
            comparisons.get(name),
            corrected.get(name),
        )
        for name, seeds in values.items()
    }


def _values(variant: Variant, column: _Column, query_ids: list[str]) -> NDArray[np.float64]:
    """Return (seeds, queries) values, with the queries in the order of the reference."""
    rows = []
    for run in variant.runs[column.split]:
        where = {query_id: index for index, query_id in enumerate(run.query_ids)}
        if where.keys() != set(query_ids):
            raise DatasetError(
                f"The row {variant.name!r} has other {column.split} queries than the reference: measure both on the "
                f"same queries."
            )
        order = np.array([where[query_id] for query_id in query_ids])
        rows.append(run.values[column.metric][order[column.queries]])
    return np.stack(rows)
