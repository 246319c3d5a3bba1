"""The learning curve: how good each run is after training on few and on many judged queries."""

from dataclasses import dataclass
from typing import Any

import rich.console
from pydantic import TypeAdapter
from rich.text import Text

from rayrank.measure.significance import Comparison
from rayrank.reports.ablation import Ablation, AblationRow, Measured
from rayrank.reports.table import MetricsTable, difference_text, mean_text, p_text

CHOSEN = "chosen on dev"
"""The row of the runs that dev chose, which may be another one for each seed."""


@dataclass(frozen=True)
class Point:
    """All runs after training on so many queries, each compared with the first stage; seeds are averaged."""

    num_queries: int
    """Judged training queries, of which some become dev queries if the dataset has no dev split."""
    chosen: list[str]
    """The title of the run that dev chose, by seed."""
    table: Ablation


@dataclass(frozen=True)
class LearningCurve:
    """The points of the curve, from few queries to all; runs are measured on `split`."""

    split: str
    points: list[Point]

    @property
    def metric(self) -> str:
        return self.points[0].table.metrics[0]

    def figure(self, point: Point, row: AblationRow) -> Measured:
        """Return the main metric of a run at a point."""
        return row.figures[self.split][self.metric]["all"]

    def to_json(self) -> dict[str, Any]:
        """Return the curve as JSON values."""
        return TypeAdapter(LearningCurve).dump_python(self, mode="json")  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, value: object) -> "LearningCurve":
        """Return the curve that `to_json` was called on."""
        return TypeAdapter(LearningCurve).validate_python(value)


def table(curve: LearningCurve) -> MetricsTable:
    """Return one line for every number of queries and run."""
    interval = f"[{curve.points[0].table.procedure.level:.0%} CI]"
    header = ["training queries", "run", f"{curve.metric} {interval}", "seeds"]
    header += [f"against the first stage {interval}", "p"]
    lines = []
    for point in curve.points:
        for row in point.table.rows:
            found = curve.figure(point, row)
            name = f"{CHOSEN}: {', '.join(dict.fromkeys(point.chosen))}" if row.name == CHOSEN else row.name
            seeds = f"{min(found.seed_means):.4f} to {max(found.seed_means):.4f}"
            lines.append([f"{point.num_queries:,}", name, mean_text(found.interval), seeds, *_cells(found.comparison)])
    return MetricsTable(header, lines)


def _cells(comparison: Comparison | None) -> list[str]:
    return [difference_text(comparison), p_text(comparison.p_value)] if comparison else ["", ""]


def caption(curve: LearningCurve) -> str:
    """Return what the table's columns mean, and whether a chosen run is below its first stage."""
    first = curve.points[0].table
    found = [curve.figure(point, row).comparison for point in curve.points for row in point.table.rows[-1:]]
    level = 1 - first.procedure.level
    below = [
        point.num_queries
        for point, each in zip(curve.points, found, strict=True)
        if each is not None and each.difference < 0 and each.p_value < level
    ]
    sizes = ", ".join(f"{size:,}" for size in below)
    verdict = (
        f"The chosen run is significantly below its first stage with {sizes} queries."
        if below
        else "The chosen run is nowhere significantly below its first stage."
    )
    return (
        f"{curve.split} split. Each seed draws its own training queries, up to all of them. Seeds are averaged query "
        f"by query; their column has the lowest and the highest mean. Intervals by bootstrap over queries; p: paired "
        f"test, two-sided. {verdict}"
    )


def plain(curve: LearningCurve) -> rich.console.Group:
    """Return the table for a terminal."""
    return rich.console.Group(table(curve).plain(), Text(caption(curve) + "\n"))


def markdown(curve: LearningCurve) -> str:
    """Return the table as Markdown."""
    return f"{table(curve).markdown()}\n{caption(curve)}\n"
