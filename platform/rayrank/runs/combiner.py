"""What all combiners share: runs that rank every passage that one of several other runs has."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from rayrank.core import flow
from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.core.progress import progress
from rayrank.core.records import CANDIDATES
from rayrank.core.run_kinds import FirstStageSettings, RunInMaking, RunKind, depth_key, depth_of
from rayrank.runs.blocks import query_lookup, read_together

Combine = Callable[[Sequence[pa.Table], str], pa.Table]
"""A function from the rows that each run has for the same queries, and their split, to the combined rows."""


class CombinerSettings(FirstStageSettings):
    """Which runs are combined.

    If `depth` is empty, a combination of first stages is cut to candidates.depth, and any other combination is not cut.
    """

    of: tuple[str, ...] = Field(min_length=2)


class Combiner(RunKind):
    """A combination of runs; if all of them are first stages, it is one, too, and covers every split."""

    def is_first_stage(self, settings: Any, config: PipelineConfig) -> bool:
        return all(flow.is_first_stage(name, config) for name in settings.of)

    def inputs(self, settings: Any, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus",)

    def key(self, settings: Any, config: PipelineConfig) -> dict[str, Any]:
        is_first_stage = self.is_first_stage(settings, config)
        depths = depth_key(settings, config) if is_first_stage else {"depth": settings.depth}
        return {**super().key(settings, config), **depths}

    def depth(self, settings: Any, config: PipelineConfig, split: str) -> int | None:
        """Return how many passages of a query of a split are kept; None for all."""
        own: int | None = settings.depth
        return depth_of(settings, config, split) if self.is_first_stage(settings, config) else own

    def combine(self, run: RunInMaking, combine: Combine) -> dict[str, Any]:
        """Write the combination of all splits, some queries at a time, and return the facts."""
        runs, num_queries, num_candidates = sources(run), 0, 0
        rows_of = query_lookup(run.store.require("corpus", run.config))
        with progress(run.name, None, "queries") as advance:
            for split in run.splits:
                for number, tables in enumerate(read_together(runs, split, rows_of)):
                    rows = combine(tables, split)
                    run.artifact.write_table(f"{split}/part-{number:05d}.parquet", rows)
                    count = pc.count_distinct(rows["query_id"]).as_py()
                    num_queries, num_candidates = num_queries + count, num_candidates + len(rows)
                    advance(count)
        # The manifest has the own names of the runs; `of` may have the alias `candidates`.
        combined = [flow.run_named(name, run.config)[0] for name in run.settings.of]
        counts = {"num_queries": num_queries, "num_candidates": num_candidates}
        return {**counts, "combined": combined, "findings": _findings(run)}


def sources(run: RunInMaking) -> list[Artifact]:
    """Return the artifacts of the runs that are combined."""
    return [run.source(name) for name in run.settings.of]


def split_rows(run: RunInMaking, split: str) -> list[pa.Table]:
    """Return all rows of every run in one split."""
    return [
        pa.concat_tables([CANDIDATES.empty_table(), *(source.read_table(name) for name in source.names(split))])
        for source in sources(run)
    ]


def _findings(run: RunInMaking) -> list[str]:
    """Return a sentence for every split that some of the runs have no rows of."""
    found = []
    for split in run.splits:
        without = [name for name in run.settings.of if not run.has(name, split)]
        if 0 < len(without) < len(run.settings.of):
            titles = ", ".join(flow.title(name, run.config) for name in without)
            found.append(f"{run.name}: {titles} has no rows in {split}; there only the other runs are combined")
    return found
