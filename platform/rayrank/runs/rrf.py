"""Rrf: a combiner that sums 1 / (k + rank) of a passage over several runs (reciprocal rank fusion)."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pydantic import Field

from rayrank.core.run_kinds import RunInMaking
from rayrank.runs.combiner import Combiner, CombinerSettings
from rayrank.scores.union import Union, reciprocal_ranks


class RrfSettings(CombinerSettings):
    """Which runs are combined, and how much the first ranks count."""

    k: int = Field(default=60, ge=0, description="added to every rank; the larger, the less the first ranks count")


class Rrf(Combiner):
    """The sum of 1 / (k + rank) over the runs that have a passage. It needs no scores and no dev queries."""

    Settings = RrfSettings

    def make(self, run: RunInMaking) -> dict[str, Any]:
        settings: RrfSettings = run.settings
        is_first_stage = self.is_first_stage(settings, run.config)

        def combine(tables: Sequence[pa.Table], split: str) -> pa.Table:
            union, depth = Union.of(tables), self.depth(settings, run.config, split)
            return union.table(reciprocal_ranks(union, settings.k), range(len(tables)), depth, is_first_stage)

        return self.combine(run, combine)
