"""Domain report: the corpus's most frequent words against those of general text, or of a reference text."""

import csv
import io
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing
from rayrank.core.artifacts import PARQUET, Artifact, Store
from rayrank.core.config import DomainConfig, PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.progress import progress
from rayrank.data.sources.lines import lines, split_bytes
from rayrank.data.sources.source import Part
from rayrank.reports.domain import (
    Comparison,
    Frequencies,
    Word,
    add_counts,
    check_language,
    compare,
    count_words,
    findings,
    general_words,
    reference_words,
)

ROWS_AT_ONCE = 4096
MERGED_AT_ONCE = 16
"""Tables of counts in memory at a time; merging keeps each distinct word once."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the report artifact: report.json, words.csv, and counts/ and reference/, one file per part of the text."""
    if done := store.find("domain_report", config):
        return done
    started = time.monotonic()
    settings = config.domain
    check_language(settings.language)
    corpus, artifact = store.require("corpus", config), store.artifact("domain_report", config)
    shards = corpus.manifest["shards"]
    parts = [{"name": f"counts/part-{row:05d}.parquet", "shard": shard} for row, shard in enumerate(shards)]
    counts, num_running = _counted("domain report", parts, config, corpus, artifact)
    if not len(counts):
        raise DatasetError(
            f"The dataset {config.dataset.source} has no words but those with digits, so none can be compared."
        )
    result = compare(counts, num_running, _reference(config, corpus, artifact), settings.words)
    name = _reference_name(settings)
    report = {"reference": name, **_report(result, settings.language, num_running, len(counts))}
    artifact.write_json("report.json", report)
    _write_words(artifact, result.words)
    facts = {"num_word_occurrences": num_running, "num_distinct_words": len(counts), "findings": findings(result, name)}
    return store.finish(artifact, config, started, facts)


def _reference(config: PipelineConfig, corpus: Artifact, artifact: Artifact) -> Frequencies:
    """Return the words to compare with: wordfreq's, or those of the reference text, counted as the corpus's are."""
    file = config.domain.reference
    if not file:
        return general_words(config.domain.language)
    # Workers may run in another folder.
    path = file if "://" in file else str(Path(file).expanduser().absolute())
    split = split_bytes(path, config.dataset.part_bytes)
    parts = [{"name": f"reference/part-{row:05d}.parquet", "text": part} for row, part in enumerate(split)]
    counts, num_running = _counted("reference text", parts, config, corpus, artifact)
    if not len(counts):
        raise ConfigError(
            f"domain.reference={file} has no words but those with digits: name another text, or leave it empty."
        )
    return reference_words(counts, num_running)


def _reference_name(settings: DomainConfig) -> str:
    text = f"the text {Path(settings.reference).name}" if settings.reference else "general text"
    return f"{text} ({settings.language})"


def _counted(
    label: str, parts: list[dict[str, Any]], config: PipelineConfig, corpus: Artifact, artifact: Artifact
) -> tuple[pa.Table, int]:
    """Count the words of all parts on the cluster; return the counts and the number of word occurrences."""
    arguments = {"corpus": corpus, "artifact": artifact, "language": config.domain.language}
    num_running = 0
    with progress(label, len(parts), "parts") as advance:
        for facts in make_missing(
            artifact, parts, WordCounter, arguments, actors=config.resources.readers, cpus=1, label=label
        ):
            num_running += facts["num_word_occurrences"]
            advance(1)
    return _add_up(artifact, [part["name"] for part in parts]), num_running


class WordCounter(PartitionWorker):
    """Counts the words of one shard of the corpus, or of one part of the reference text, into one Parquet file."""

    def __init__(self, corpus: Artifact, artifact: Artifact, language: str) -> None:
        self._corpus, self._artifact, self._language = corpus, artifact, language

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        counted, num_running = count_words([], self._language)
        for texts in self._texts(item):
            words, found = count_words(texts, self._language)
            counted = add_counts([counted, words])
            num_running += found
        facts = {"num_word_occurrences": num_running}
        schema = counted.schema.with_metadata({FACTS: json.dumps(facts).encode()})
        with self._artifact.create(item["name"]) as stream:
            pq.write_table(counted.cast(schema), stream, **PARQUET)
        return facts

    def _texts(self, item: dict[str, Any]) -> Iterator[list[str]]:
        """Yield the passages of a shard, or the lines of a part of the reference text, some at a time."""
        if "shard" in item:
            for batch in self._corpus.batches(item["shard"], ["text"], rows=ROWS_AT_ONCE):
                yield batch.column(0).to_pylist()
            return
        found = (line.data.decode("utf-8", errors="replace") for line in lines(Part(*item["text"])))
        while texts := list(islice(found, ROWS_AT_ONCE)):
            yield texts


def _add_up(artifact: Artifact, names: list[str]) -> pa.Table:
    """Return the sum of the counts of all files, MERGED_AT_ONCE of them in memory at a time."""
    total = count_words([], "en")[0]
    for start in range(0, len(names), MERGED_AT_ONCE):
        total = add_counts([total, *(artifact.read_table(name) for name in names[start : start + MERGED_AT_ONCE])])
    return total


def _report(result: Comparison, language: str, num_running: int, num_distinct: int) -> dict[str, Any]:
    return {
        "language": language,
        "num_word_occurrences": num_running,
        "num_distinct_words": num_distinct,
        "compared": result.compared,
        "num_differing": result.num_differing,
        "share": round(result.share, 4),
        "share_by_chance": round(result.by_chance, 4),
        "covered": round(result.covered, 4),
        "min_count": result.min_count,
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
