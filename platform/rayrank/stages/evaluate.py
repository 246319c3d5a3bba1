"""Evaluate: one run on one split, with intervals, and compared with a baseline if one is named."""

import time
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import EvaluateConfig, PipelineConfig
from rayrank.data.qrels import qrels_of
from rayrank.data.run_files import write_msmarco, write_trec
from rayrank.measure.metrics import Measure, PerQuery
from rayrank.measure.significance import compare, mean_interval
from rayrank.runs.reading import measured_split, read_named, run_names


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the evaluation artifact: run.trec, msmarco.tsv, per_query.parquet and the figures in its manifest."""
    if done := store.find("evaluate", config):
        return done
    started = time.monotonic()
    settings, corpus, artifact = config.evaluate, store.require("corpus", config), store.artifact("evaluate", config)
    split = measured_split(settings, corpus)
    qrels = qrels_of(corpus, split)
    ranking = read_named(settings.run, split, config, store)
    measure = Measure.of(config)
    measured = measure.reported(qrels, ranking)
    baseline = (
        measure.reported(qrels, read_named(settings.baseline, split, config, store)) if settings.baseline else None
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
