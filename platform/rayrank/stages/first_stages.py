"""First stages compared: makes those that are missing, and measures them and the rankers of their candidates."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import NamedTuple

import pyarrow as pa

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.records import CANDIDATES
from rayrank.data.digests import varied
from rayrank.data.qrels import qrels_of
from rayrank.measure.places import places
from rayrank.reports.ablation import Procedure
from rayrank.reports.first_stages import (
    Cost,
    FirstStageReport,
    Measured,
    RankedBy,
    SplitReport,
    split_report,
    top_rows,
)
from rayrank.runs.making import held_out, read_run
from rayrank.stages.graph import make_all

OUTSIDE = ("file", "provided")
"""Kinds of runs whose search another system did; its speed and the size of its index are unknown."""


class Comparison(NamedTuple):
    """What is compared, all of it on storage."""

    config: PipelineConfig
    splits: list[str]
    names: list[str]
    """First stages."""
    rankers: list[tuple[str, str]]
    """Pairs of a first stage and a run that ranks its candidates."""

    @property
    def reference(self) -> str:
        """The configured first stage, or the first one if that is not compared."""
        configured = self.config.candidates.first_stage
        return configured if configured in self.names else self.names[0]

    @property
    def procedure(self) -> Procedure:
        return Procedure.of(self.config.evaluate)

    @property
    def digest(self) -> str:
        """The name of the report's folder: a digest of the names and keys of all runs, and of how they are tested."""
        runs = [*((name, name) for name in self.names), *self.rankers]
        keys = [[*pair, flow.key(flow.run_node(pair[1], self.config), self.config)] for pair in runs]
        identity = [keys, self.splits, self.reference, asdict(self.procedure)]
        return digest_of(identity)


def prepare(config: PipelineConfig, store: Store, names: Sequence[str] = (), split: str = "") -> Comparison:
    """Make the first stages that are missing and return what can be compared.

    Without names these are the configured first stage, those that it reads, and all others that exist on storage.
    """
    make_all([("corpus", config)], store, parallel=1)
    splits = _splits(config, store, split)
    if not names:
        asked = _with_read(config.candidates.first_stage, config)
        others = [name for name in config.runs if name not in asked and _exists(name, config, store)]
        names = [name for name in config.runs if name in {*asked, *others}]
    config = with_digests(names, config)
    # An artifact may outlive its inputs, which are then not made again.
    missing = [node for node in (flow.run_node(name, config) for name in names) if not store.find(node, config)]
    if missing:
        make_all([(node, config) for node in missing], store, parallel=1)
    return Comparison(config, splits, list(names), _rankers(names, config, store))


def with_digests(names: Sequence[str], config: PipelineConfig) -> PipelineConfig:
    """Return the configuration with the digests of the files that these runs read: jobs digest only what they use."""
    for name in names:
        config = config.model_copy(update={"runs": varied(config, {"evaluate.run": name}).runs})
    return config


def measure(compared: Comparison, store: Store) -> FirstStageReport:
    """Return all figures of what is compared."""
    config, titles = compared.config, _titles(compared)
    return FirstStageReport(
        titles[compared.reference],
        [_on_split(split, compared, titles, store) for split in compared.splits],
        {titles[name]: cost(name, config, store) for name in compared.names},
        [titles[name] for name in compared.names if not flow.run_named(name, config)[2].has_scores],
        compared.procedure,
    )


def cost(name: str, config: PipelineConfig, store: Store) -> Cost:
    """Return how fast a first stage answered queries, and the total size of the indexes and vectors that it searches.

    Both include the runs that it reads.
    """
    names = _with_read(name, config)
    nodes = [flow.run_node(each, config) for each in names]
    inputs = [each for node in nodes for each in flow.inputs(node, config)]
    searched = dict.fromkeys(each for each in inputs if each != "corpus" and not flow.run_of(each))
    runs, indexes = ([store.find(node, config) for node in chosen] for chosen in (nodes, searched))
    if any(config.runs[each].kind in OUTSIDE for each in names):
        return Cost(None, None)
    manifests, sizes = [run.manifest for run in runs if run], [_num_bytes(index) for index in indexes if index]
    seconds, num_queries = sum(each["seconds"] for each in manifests), manifests[-1].get("num_queries")
    is_known = num_queries and seconds and len(manifests) == len(runs)
    return Cost(
        num_queries / seconds if is_known else None, sum(sizes) if sizes and len(sizes) == len(indexes) else None
    )


def _splits(config: PipelineConfig, store: Store, split: str) -> list[str]:
    judged = held_out(store.require("corpus", config))
    if not judged:
        raise DatasetError(f"The dataset {config.dataset.source} has no judged held-out queries to compare runs on.")
    if split and split not in judged:
        raise ConfigError(f"--split {split} has no judgments that are held out: choose one of {', '.join(judged)}.")
    return [split] if split else judged


def _with_read(name: str, config: PipelineConfig) -> list[str]:
    """Return a run after all runs that it reads, directly or through others."""
    name, settings, kind = flow.run_named(name, config)
    before = dict.fromkeys(each for read in kind.reads(settings) for each in _with_read(read, config))
    return [*before, name]


def _exists(name: str, config: PipelineConfig, store: Store) -> bool:
    """Return whether a run is a first stage that is on storage."""
    if not flow.is_first_stage(name, config):
        return False
    node = flow.run_node(name, config)
    # The key may need a digest of hundreds of gigabytes, so look first whether there is any run of this kind.
    if not any(store.finished(flow.describe(node, config).folder)):
        return False
    return store.find(node, with_digests([name], config)) is not None


def _rankers(names: Sequence[str], config: PipelineConfig, store: Store) -> list[tuple[str, str]]:
    """Return pairs of a first stage and a run on storage that ranks this first stage's candidates and no others."""
    ranking = [name for name in config.runs if not flow.is_first_stage(name, config)]
    found = [(_found_by(name, config), name) for name in ranking if store.find(flow.run_node(name, config), config)]
    return [(firsts[0], name) for firsts, name in found if len(firsts) == 1 and firsts[0] in names]


def _found_by(name: str, config: PipelineConfig) -> list[str]:
    """Return the first stages that found the passages of a run."""
    name, settings, kind = flow.run_named(name, config)
    if kind.is_first_stage(settings, config):
        return [name]
    return list(dict.fromkeys(first for read in kind.reads(settings) for first in _found_by(read, config)))


def _titles(compared: Comparison) -> dict[str, str]:
    """Return each run's title, with its name where two have the same."""
    runs = [*compared.names, *(name for _, name in compared.rankers)]
    titles = [flow.title(name, compared.config) for name in runs]
    return {
        name: f"{title} ({name})" if titles.count(title) > 1 else title
        for name, title in zip(runs, titles, strict=True)
    }


def _on_split(split: str, compared: Comparison, titles: dict[str, str], store: Store) -> SplitReport:
    config = compared.config
    qrels, relevant_from = qrels_of(store.require("corpus", config), split), config.dataset.relevant_from
    runs: dict[str, Measured | None] = {}
    for name in compared.names:
        rows = _rows(name, split, config, store)
        runs[titles[name]] = Measured(places(qrels, rows, relevant_from), top_rows(rows)) if len(rows) else None
    rankers = [
        RankedBy(titles[first], titles[name], places(qrels, rows, relevant_from))
        for first, name in compared.rankers
        if len(rows := _rows(name, split, config, store))
    ]
    return split_report(split, qrels, runs, rankers, titles[compared.reference], relevant_from, compared.procedure)


def _rows(name: str, split: str, config: PipelineConfig, store: Store) -> pa.Table:
    artifact = store.require(flow.run_node(name, config), config)
    return pa.concat_tables([CANDIDATES.empty_table(), *read_run(artifact, split)])


def _num_bytes(artifact: Artifact) -> int:
    """Return the size of a Lucene index or of vectors."""
    manifest = artifact.manifest
    parts = [manifest["lucene"]] if "lucene" in manifest else manifest.get("shards", [""])
    return sum(int(artifact.filesystem.du(artifact.path(part))) for part in parts)
