"""What each part of the model is worth: rows measured on the same queries, each against the full model."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from rayrank.core.errors import ConfigError, DatasetError
from rayrank.measure.metrics import PerQuery
from rayrank.measure.significance import Comparison, Interval, compare, holm, mean_interval

ALL = "all"
"""The slice that holds every query."""


@dataclass(frozen=True)
class Variant:
    """A row before it is compared: for each split the figures of one or several seeds."""

    name: str
    runs: Mapping[str, Sequence[PerQuery]]
    device_seconds: float | None = None


@dataclass(frozen=True)
class Procedure:
    """How sure figures are is found the same way for all rows."""

    test: Literal["randomisation", "t"] = "randomisation"
    resamples: int = 10_000
    seed: int = 13
    level: float = 0.95


PROCEDURE = Procedure()


@dataclass(frozen=True)
class Measured:
    """One metric of one row over some queries; the reference has no comparison. Seeds are averaged query by query."""

    num_queries: int
    interval: Interval
    seed_means: list[float]
    comparison: Comparison | None = None
    p_holm: float | None = None


@dataclass(frozen=True)
class AblationRow:
    """A row of the table: figures by split, metric and slice of the queries."""

    name: str
    num_seeds: int
    device_seconds: float | None
    figures: dict[str, dict[str, dict[str, Measured]]]

    def figure(self, split: str, metric: str, part: str = ALL) -> Measured | None:
        return self.figures.get(split, {}).get(metric, {}).get(part)


@dataclass(frozen=True)
class Ablation:
    """The whole table; the first metric is the one that slices are measured by."""

    reference: str
    rows: list[AblationRow]
    splits: list[str]
    metrics: list[str]
    slices: list[str]
    procedure: Procedure

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return TypeAdapter(Ablation).dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, value: object) -> "Ablation":
        """Return the table that `to_json` was called on."""
        return TypeAdapter(Ablation).validate_python(value)


@dataclass(frozen=True)
class _Place:
    """A column of the table before it is filled: which values of which queries."""

    split: str
    metric: str
    part: str
    chosen: NDArray[np.int64]


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
    for place in _places(full, metrics, slices):
        for name, figure in _column(variants, full, place, procedure).items():
            tables[name].setdefault(place.split, {}).setdefault(place.metric, {})[place.part] = figure
    rows = [
        AblationRow(
            variant.name, max(map(len, variant.runs.values())), variant.device_seconds, figures=tables[variant.name]
        )
        for variant in variants
    ]
    return Ablation(reference, rows, list(full.runs), metrics, list(slices), procedure)


def _reference(variants: Sequence[Variant], reference: str) -> Variant:
    names = [variant.name for variant in variants]
    if len(set(names)) != len(names):
        raise ConfigError(f"The rows {', '.join(names)} name one twice: give every row its own name.")
    if reference not in names:
        raise ConfigError(f"The reference row {reference!r} is not among the rows: name one of {', '.join(names)}.")
    full = variants[names.index(reference)]
    for variant in variants:
        if extra := variant.runs.keys() - full.runs.keys():
            raise DatasetError(
                f"The row {variant.name!r} has the split {min(extra)} and {reference!r} has not: measure both on it."
            )
    return full


def _places(full: Variant, metrics: list[str], slices: Mapping[str, AbstractSet[str]]) -> Iterator[_Place]:
    for split, runs in full.runs.items():
        query_ids = runs[0].query_ids
        for metric in metrics:
            yield _Place(split, metric, ALL, np.arange(len(query_ids)))
        for name, members in slices.items():
            chosen = np.flatnonzero([query_id in members for query_id in query_ids])
            if len(chosen):
                yield _Place(split, metrics[0], name, chosen)


def _column(variants: Sequence[Variant], full: Variant, place: _Place, procedure: Procedure) -> dict[str, Measured]:
    """Return the figure of each row that has the split; p values are corrected over the rows of this column."""
    query_ids = full.runs[place.split][0].query_ids
    values = {variant.name: _values(variant, place, query_ids) for variant in variants if variant.runs.get(place.split)}
    test, resamples, seed, level = procedure.test, procedure.resamples, procedure.seed, procedure.level
    base = values[full.name].mean(axis=0)
    others = [name for name in values if name != full.name]
    comparisons = {name: compare(values[name].mean(axis=0), base, test, resamples, seed, level) for name in others}
    corrected = dict(zip(others, holm([comparisons[name].p_value for name in others]), strict=True))
    return {
        name: Measured(
            len(place.chosen),
            mean_interval(seeds.mean(axis=0), resamples, seed, level),
            seeds.mean(axis=1).tolist(),
            comparisons.get(name),
            corrected.get(name),
        )
        for name, seeds in values.items()
    }


def _values(variant: Variant, place: _Place, query_ids: list[str]) -> NDArray[np.float64]:
    """Return (seeds, queries) values, the queries as the reference has them."""
    rows = []
    for run in variant.runs[place.split]:
        where = {query_id: index for index, query_id in enumerate(run.query_ids)}
        if where.keys() != set(query_ids):
            raise DatasetError(
                f"The row {variant.name!r} has other {place.split} queries than the reference: measure both on one set."
            )
        order = np.array([where[query_id] for query_id in query_ids])
        rows.append(run.values[place.metric][order[place.chosen]])
    return np.stack(rows)
