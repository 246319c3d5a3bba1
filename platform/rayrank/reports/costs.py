"""What each part of a job took, as a table."""

from collections.abc import Sequence
from typing import NamedTuple

from rayrank.reports.table import MetricsTable


class Part(NamedTuple):
    """Artifacts of one stage or run, and the seconds that it took to make them, whenever that was."""

    of: str
    """The part of the job that needs them, such as the teacher."""
    name: str
    num_artifacts: int
    seconds: float


def costs_table(parts: Sequence[Part]) -> MetricsTable:
    """Return one line for each stage or run, and one for the sum."""
    lines = [[each.of, each.name, str(each.num_artifacts), f"{each.seconds:,.0f}"] for each in parts]
    total = ["all", "", str(sum(each.num_artifacts for each in parts)), f"{sum(each.seconds for each in parts):,.0f}"]
    return MetricsTable(["part", "stage or run", "artifacts", "seconds"], [*lines, total])
