"""Domain report: the corpus's most frequent words beside those of general text."""

import csv
import io
import json
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress
from rayrank.reports.domain import (
    Comparison,
    Word,
    add_counts,
    check_language,
    compare,
    count_words,
    findings,
    general_words,
)

ROWS_AT_ONCE = 4096
MERGED_AT_ONCE = 16
"""Tables of counts that are in memory together: what they share is kept once from then on."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the report artifact: report.json, words.csv, and counts/, one file a shard of the corpus."""
    if done := store.find("domain_report", config):
        return done
    started = time.monotonic()
    settings = config.domain
    check_language(settings.language)
    corpus, artifact = store.require("corpus", config), store.artifact("domain_report", config)
    shards = corpus.manifest["shards"]
    items = [{"name": f"counts/part-{row:05d}.parquet", "shard": shard} for row, shard in enumerate(shards)]
    num_running = 0
    with progress("domain report", len(items), "parts") as advance:
        arguments = {"corpus": corpus, "artifact": artifact, "language": settings.language}
        workers = config.resources.readers
        for facts in make_missing(
            artifact, items, WordCounter, arguments, actors=workers, cpus=1, label="domain report"
        ):
            num_running += facts["num_running_words"]
            advance(1)
    counts = _add_up(artifact, [item["name"] for item in items])
    if not len(counts):
        raise DatasetError(f"The dataset {config.dataset.source} has no words without digits: nothing can be compared.")
    result = compare(counts, num_running, general_words(settings.language), settings.words)
    report = _report(result, settings.language, num_running, len(counts))
    artifact.write_json("report.json", report)
    _write_words(artifact, result.words)
    facts = {
        "num_running_words": num_running,
        "num_distinct_words": len(counts),
        "findings": findings(result, settings.language),
    }
    return store.finish(artifact, config, started, facts)


class WordCounter(PartitionWorker):
    """Counts the words of one shard of the corpus and writes them as one Parquet file, rare ones too."""

    def __init__(self, corpus: Artifact, artifact: Artifact, language: str) -> None:
        self._corpus, self._artifact, self._language = corpus, artifact, language

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        counted, num_running = None, 0
        for batch in self._corpus.batches(item["shard"], ["text"], rows=ROWS_AT_ONCE):
            words, found = count_words(batch.column(0).to_pylist(), self._language)
            counted = words if counted is None else add_counts([counted, words])
            num_running += found
        counted = counted if counted is not None else count_words([], self._language)[0]
        facts = {"num_running_words": num_running}
        schema = counted.schema.with_metadata({FACTS: json.dumps(facts).encode()})
        with self._artifact.create(item["name"]) as stream:
            pq.write_table(counted.cast(schema), stream, compression="zstd")
        return facts


def _add_up(artifact: Artifact, names: list[str]) -> pa.Table:
    """Return the counts of all files together: exact, and in memory only what they have in common plus a few files."""
    total = artifact.read_table(names[0])
    for start in range(1, len(names), MERGED_AT_ONCE):
        total = add_counts([total, *(artifact.read_table(name) for name in names[start : start + MERGED_AT_ONCE])])
    return total


def _report(result: Comparison, language: str, num_running: int, num_distinct: int) -> dict[str, Any]:
    return {
        "language": language,
        "num_running_words": num_running,
        "num_distinct_words": num_distinct,
        "compared": result.compared,
        "num_differing": result.num_differing,
        "share": round(result.share, 4),
        "share_by_chance": round(result.by_chance, 4),
        "covered": round(result.covered, 4),
        "least_count": result.least_count,
        "typical": [_row(word) for word in result.typical()],
    }


def _row(word: Word) -> dict[str, Any]:
    return {**word._asdict(), "ratio": float(f"{word.ratio:.4g}"), "divergence": float(f"{word.divergence:.4g}")}


def _write_words(artifact: Artifact, words: list[Word]) -> None:
    text = io.StringIO(newline="")
    rows = csv.DictWriter(text, Word._fields)
    rows.writeheader()
    rows.writerows(_row(word) for word in words)
    with artifact.create("words.csv") as stream:
        stream.write(text.getvalue().encode())
