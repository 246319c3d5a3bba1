"""Evaluate: one run on one split, with intervals, and compared with a baseline if one is named."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import EvaluateConfig, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.rows import ranked
from rayrank.data.run_files import read_trec, write_msmarco, write_trec
from rayrank.measure.metrics import Measure, PerQuery
from rayrank.measure.significance import compare, mean_interval


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the evaluation artifact: run.trec, msmarco.tsv, per_query.parquet and the figures in its manifest."""
    if done := store.find("evaluate", config):
        return done
    started = time.monotonic()
    settings, corpus, artifact = config.evaluate, store.require("corpus", config), store.artifact("evaluate", config)
    split = _split(settings, corpus)
    judgments = corpus.read_table("judgments.parquet")
    qrels = judgments.filter(pc.equal(judgments["split"], split))
    ranking = _read_run(settings.run, split, config, store)
    measure = Measure.of(config)
    measured = measure.reported(qrels, ranking)
    baseline = (
        measure.reported(qrels, _read_run(settings.baseline, split, config, store)) if settings.baseline else None
    )
    tag, baseline_name = run_names(settings.run, settings.baseline, config)
    with artifact.create("run.trec") as stream:
        write_trec(ranking, stream, tag=tag)
    with artifact.create("msmarco.tsv") as stream:
        write_msmarco(ranking, stream)
    artifact.write_table("per_query.parquet", pa.table({"query_id": measured.query_ids, **measured.values}))
    facts = {
        "run": tag,
        "baseline": baseline_name,
        "split": split,
        "num_queries": len(measured.query_ids),
        "num_without_results": measured.num_without_results,
        "metric": measure.name,
        "metrics": _figures(settings, measured, baseline),
    }
    return store.finish(artifact, config, started, facts)


def run_names(run: str, baseline: str, config: PipelineConfig) -> tuple[str, str]:
    """Return the names to show for two runs; run files with equal stems are shown by file name, or else by path."""
    pairs = list(zip(_names(run or CANDIDATES, config), _names(baseline, config), strict=True))
    return next((pair for pair in pairs if pair[0] != pair[1]), pairs[0])


def _names(run: str, config: PipelineConfig) -> list[str]:
    """Return three names for a run, shortest first; a file is never shown under the name of a configured run."""
    if not run or flow.is_run(run, config):
        return [flow.run_named(run, config)[0] if run else ""] * 3
    names = [name for name in (Path(run).stem, Path(run).name) if name not in config.runs]
    return [*names, run, run, run][:3]


def _split(settings: EvaluateConfig, corpus: Artifact) -> str:
    splits = [name for name, counts in corpus.manifest["splits"].items() if counts["num_judgments"]]
    if settings.split in splits:
        return settings.split
    if not splits:
        raise ConfigError("No split of the dataset has judgments, so no run can be measured: add judgments.")
    preferred = [name for name in ("test", "dev") if name in splits]
    if settings.split or not preferred:
        wanted = (
            f"evaluate.split={settings.split} has no judgments" if settings.split else "test and dev are not judged"
        )
        raise ConfigError(f"{wanted}: choose one of {', '.join(splits)} with --set evaluate.split=...")
    return preferred[0]


def _read_run(name: str, split: str, config: PipelineConfig, store: Store) -> pa.Table:
    name = name or CANDIDATES
    if not flow.is_run(name, config):
        with Path(name).open("rb") as stream:
            return read_trec(stream, name)
    artifact = store.require(flow.run_node(name, config), config)
    files = artifact.names(split)
    if not files:
        raise ConfigError(
            f"The run {name} has no rows in the split {split}: choose another split with --set evaluate.split=..., or "
            f"search for candidates with --set candidates.first_stage=bm25."
        )
    return ranked(pa.concat_tables([artifact.read_table(file) for file in files]))


def _figures(settings: EvaluateConfig, run: PerQuery, baseline: PerQuery | None) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, values in run.values.items():
        figures[name] = asdict(mean_interval(values, settings.resamples, settings.seed))
        if baseline is not None:
            other = baseline.values[name]
            figures[name]["baseline"] = asdict(mean_interval(other, settings.resamples, settings.seed))
            difference = compare(values, other, settings.test, settings.resamples, settings.seed)
            figures[name]["comparison"] = asdict(difference)
    return figures
