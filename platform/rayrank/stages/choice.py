"""The run that dev chooses: the one with the highest mean if it is significantly better than the first stage, else the
first stage."""

from dataclasses import asdict
from typing import Any, NamedTuple

import pyarrow as pa

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import DEV
from rayrank.data.qrels import qrels_of
from rayrank.data.rows import ranked
from rayrank.measure.metrics import Measure
from rayrank.measure.significance import Comparison, compare
from rayrank.reports.table import p_phrase

SIGNIFICANCE_LEVEL = 0.1
"""Another run is chosen over the first stage only if a paired test gives a p value below this."""


class Choice(NamedTuple):
    """The run that dev chose, and how all runs compare there."""

    name: str
    first_stage: str
    metric: str
    num_queries: int
    means: dict[str, float]
    """The mean of the metric for each run; the first stage's comes first."""
    comparisons: dict[str, Comparison]
    """Each run but the first stage against the first stage."""

    def is_better(self, name: str) -> bool:
        """Return whether a run is better than the first stage, and not only by chance."""
        found = self.comparisons.get(name)
        return found is not None and found.difference > 0 and found.p_value < SIGNIFICANCE_LEVEL

    def facts(self) -> dict[str, Any]:
        """Return the choice as JSON."""
        return {**self._asdict(), "comparisons": {name: asdict(found) for name, found in self.comparisons.items()}}

    def finding(self) -> str:
        """Return a sentence about the choice."""
        figure = f"{self.name} with {self.metric} {self.means[self.name]:.4f}"
        start = f"chosen on {DEV} ({self.num_queries:,} queries): {figure}"
        if not self.comparisons:
            return f"{start}, the only run"
        best = max(self.comparisons, key=self.means.__getitem__)
        found = self.comparisons[best]
        margin = f"{found.difference:+.4f} over {self.first_stage}, {p_phrase(found.p_value)}"
        if self.name != self.first_stage:
            return f"{start} ({margin})"
        return f"{start}; no other run is significantly better: {best} has {self.means[best]:.4f} ({margin})"


def choose(config: PipelineConfig, store: Store) -> Choice | None:
    """Choose among the runs that exist on storage; None if dev has no judgments, or the first stage no dev rows."""
    first = flow.run_named(config.candidates.first_stage, config)[0]
    if not _dev_rows(first, config, store):
        return None
    qrels = qrels_of(store.require("corpus", config), DEV)
    if not len(qrels):
        return None
    tables = {name: rows for name in compared_runs(config) if (rows := _dev_rows(name, config, store))}
    values = {name: Measure.of(config).values(qrels, ranked(pa.concat_tables(rows))) for name, rows in tables.items()}
    settings = config.evaluate
    comparisons = {
        name: compare(found, values[first], settings.test, settings.resamples, settings.seed)
        for name, found in values.items()
        if name != first
    }
    means = {name: float(found.mean()) for name, found in values.items()}
    choice = Choice(first, first, Measure.of(config).name, len(values[first]), means, comparisons)
    best = max(means, key=means.__getitem__)
    return choice._replace(name=best) if choice.is_better(best) else choice


def compared_runs(config: PipelineConfig) -> list[str]:
    """Return the first stage, then every run that ranks its candidates."""
    first = flow.run_named(config.candidates.first_stage, config)[0]
    return [first, *(name for name in flow.used_runs(config) if not flow.is_first_stage(name, config))]


def _dev_rows(name: str, config: PipelineConfig, store: Store) -> list[pa.Table]:
    """Return the dev rows of a run, none if they are not on storage."""
    artifact = store.find(flow.run_node(name, config), config)
    return [artifact.read_table(file) for file in artifact.names(DEV)] if artifact else []
