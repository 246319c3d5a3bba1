"""Makes one run: its kind writes the rows; this module provides the inputs and finishes the artifact."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import CANDIDATES
from rayrank.data.rows import ranked


def make_run(node: str, config: PipelineConfig, store: Store) -> Artifact:
    """Return the artifact of a run, which holds a folder of Parquet files for each split; make it if it is missing."""
    if done := store.find(node, config):
        return done
    started = time.monotonic()
    for needed in flow.inputs(node, config):
        store.require(needed, config)
    run = Making(node, config, store)
    _, _, kind = flow.run_named(run.name, config)
    return store.finish(run.artifact, config, started, kind.make(run), node)


def read_run(artifact: Artifact, split: str) -> Iterator[pa.Table]:
    """Yield the rows of one split, a file at a time.

    If a query's rows are spread over several files, the best ones are in the first.
    """
    return map(artifact.read_table, artifact.names(split))


def held_out(corpus: Artifact) -> list[str]:
    """Return the judged splits that nothing is trained on."""
    splits = corpus.manifest["splits"]
    return [name for name, counts in splits.items() if name != "train" and counts["num_judgments"]]


class Making:
    """A run that is being made, as its kind sees it (`core.run_kinds.RunInMaking`)."""

    def __init__(self, node: str, config: PipelineConfig, store: Store) -> None:
        found = flow.run_of(node)
        assert found is not None
        self.node, (self.name, self._train) = node, found
        self.settings: Any = config.runs[self.name]
        self.config, self.store, self.artifact = config, store, store.artifact(node, config)

    @property
    def splits(self) -> list[str]:
        corpus = self.store.require("corpus", self.config)
        if flow.is_first_stage(self.name, self.config):
            return list(corpus.manifest["splits"])
        return ["train"] if self._train else held_out(corpus)

    def source(self, name: str) -> Artifact:
        """Return the artifact of a run that this one reads, on the same splits."""
        return self.store.require(flow.run_node(name, self.config, self._train), self.config)

    def has(self, name: str, split: str) -> bool:
        """Return whether another run has rows of a split."""
        return bool(self.source(name).names(split))

    def rows(self, name: str, split: str) -> pa.Table:
        """Return another run's rows in stored order."""
        return pa.concat_tables([CANDIDATES.empty_table(), *read_run(self.source(name), split)])

    def read(self, name: str, split: str) -> pa.Table:
        """Return the rows of another run, best first within each query."""
        return ranked(self.rows(name, split))

    def write(self, split: str, rows: pa.Table) -> None:
        """Store this run's rows of a split."""
        self.artifact.write_table(f"{split}/part-00000.parquet", rows)
