"""Noise report: what the noise filter does to the training candidates, to help a person choose its settings."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.passage_texts import passage_texts
from rayrank.reports import noise_pairs, noise_table
from rayrank.reports.noise import report
from rayrank.reports.noise_plot import noise_png
from rayrank.runs.making import read_run


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the report: report.json, report.md, report.png, and suspicious.csv for relabelling."""
    if done := store.find("noise_report", config):
        return done
    started = time.monotonic()
    artifact, corpus = store.artifact("noise_report", config), store.require("corpus", config)
    scores = store.require("noise", config)
    types = store.require("query_types", config).read_table("query_types.parquet") if config.input.query_type else None
    judgments, hidden = (_of_train(corpus.read_table(name)) for name in ("judgments.parquet", "hidden.parquet"))
    scattered = not flow.run_named(CANDIDATES, config)[2].has_scores
    truth, relevant_from = hidden if len(hidden) else None, config.dataset.relevant_from
    noise, rows = config.noise, _parts(scores, scattered)
    facts = report(rows, judgments, types, noise.threshold, truth, relevant_from, noise.margin, noise.relabel)
    artifact.write_json("report.json", facts)
    pairs = noise_pairs.suspicious(_parts(scores, scattered), judgments, types, relevant_from=relevant_from)
    for name, content in (
        ("report.md", noise_table.markdown(facts).encode()),
        ("report.png", noise_png(facts)),
        ("suspicious.csv", noise_pairs.csv_bytes(_with_texts(pairs, corpus))),
    ):
        with artifact.create(name) as stream:
            stream.write(content)
    shown = {name: facts[name] for name in ("threshold", "num_negatives", "at_threshold", "hidden")}
    return store.finish(artifact, config, started, {"noise": shown, "findings": noise_table.sentences(facts)})


def _of_train(judgments: pa.Table) -> pa.Table:
    return judgments.filter(pc.equal(judgments["split"], "train"))


def _parts(scores: Artifact, scattered: bool) -> Iterator[pa.Table]:
    """Yield the scored rows, all rows of a query in one table; a dataset's own files may separate them."""
    tables = read_run(scores, "train")
    yield from [pa.concat_tables(tables)] if scattered else tables


def _with_texts(pairs: pa.Table, corpus: Artifact) -> pa.Table:
    queries = corpus.read_table("queries.parquet", ["query_id", "text"])
    passages = passage_texts(corpus, noise_pairs.passage_ids(pairs))
    texts = dict(zip(queries["query_id"].to_pylist(), queries["text"].to_pylist(), strict=True))
    return noise_pairs.with_texts(pairs, texts, passages)
