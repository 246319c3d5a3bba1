"""Corpus: a dataset checked, tokenised once, and stored as Parquet."""

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from rayrank.cluster.connection import start_ray
from rayrank.cluster.partitions import FACTS, PartitionWorker, make_missing
from rayrank.core.artifacts import PARQUET, Artifact, Store
from rayrank.core.config import DatasetConfig, PipelineConfig, TextConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress, say
from rayrank.core.records import JUDGMENTS, PASSAGES, QUERIES, Judgment, Malformed, Passage
from rayrank.data.judged import Judged, read_judged
from rayrank.data.problems import EXAMPLES, Counted, Problems
from rayrank.data.query_type_labels import read_types
from rayrank.data.shards import copy_without, present_ids, repeated_rows
from rayrank.data.sources import open_source
from rayrank.data.sources.source import Part, Source
from rayrank.text.pieces import PieceEncoder, load_tokenizer, save_tokenizer

ROWS_AT_ONCE = 4096

FEW_DEV_QUERIES = 100
SPREAD = 0.3
"""A usual standard deviation, over queries, of the difference of two rankers' reciprocal ranks."""


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the corpus artifact: passages/, queries.parquet, judgments.parquet, hidden.parquet, tokenizer/."""
    if done := store.find("corpus", config):
        return done
    started = time.monotonic()
    artifact = store.artifact("corpus", config)
    source = open_source(config.dataset)
    for note in source.notes():
        say(f"dataset: {note}")
    problems = Problems(config.dataset)
    types = read_types(config.dataset.types_file, problems)
    judged = read_judged(source, config.dataset, problems, types)
    # Loaded before any worker starts, so that a tokenizer that cannot be loaded is reported as one sentence.
    # Ray starts meanwhile: its start and the import of the tokenizer's library take several seconds each, and while it
    # starts, this process mostly waits for Ray's processes.
    with ThreadPoolExecutor(1) as beside:
        tokenizer = beside.submit(load_tokenizer, config.text.tokenizer)
        start_ray()
        save_tokenizer(tokenizer.result(), artifact)
    shards = _write_passages(config, artifact, source, problems)
    judged = _of_known_passages(artifact, shards, judged, problems)
    problems.stop_if_decided()
    if not judged.judgments:
        raise DatasetError(
            f"The dataset {config.dataset.source} has no judgment of a known query and passage: check the ids in its "
            f"qrels files."
        )
    hidden = list(source.hidden())
    _write_judged(artifact, config.text, judged, hidden)
    if judged.num_same_text:
        say(f"dataset: {judged.num_same_text:,} queries are kept though a training query has the same text")
    facts = {
        "num_passages": sum(artifact.num_rows(name) for name in shards),
        "shards": shards,
        "num_queries": len(judged.queries),
        "num_judgments": len(judged.judgments),
        "num_hidden_answers": len(hidden),
        "num_same_text": judged.num_same_text,
        "num_held_out": judged.num_held_out,
        "splits": _splits(judged),
        "problems": problems.report(),
        "notes": source.notes(),
        "findings": _about_dev(judged, config.dataset.relevant_from),
    }
    return store.finish(artifact, config, started, facts)


def _about_dev(judged: Judged, relevant_from: int) -> list[str]:
    """Return sentences about where the dev split comes from, and whether it is large enough to choose models with."""
    dev = {row.query_id for row in judged.judgments if row.split == "dev" and row.relevance >= relevant_from}
    found = []
    if judged.num_held_out:
        found.append(
            f"dev: the dataset has no dev split, so {judged.num_held_out:,} of its training queries became dev "
            f"(dataset.holdout)"
        )
    if 0 < len(dev) < FEW_DEV_QUERIES:
        found.append(
            f"dev: {len(dev):,} queries are few to choose between models: two that differ by less than about "
            f"{2 * SPREAD / len(dev) ** 0.5:.2f} in MRR@10 cannot be told apart"
        )
    return found


class PassageWriter(PartitionWorker):
    """Reads one part of the corpus and writes it, tokenised, as one Parquet file."""

    def __init__(self, artifact: Artifact, dataset: DatasetConfig, text: TextConfig) -> None:
        self._artifact = artifact
        self._problems = Problems(dataset)
        self._source = open_source(dataset)
        self._encode = PieceEncoder(_tokenizer(artifact), text.passage_pieces)

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        num_passages, found = 0, Counted()
        with (
            self._artifact.create(item["name"]) as stream,
            pq.ParquetWriter(stream, PASSAGES, **PARQUET) as writer,
        ):
            rows: list[Passage] = []
            for row in self._source.passages(Part(*item["part"])):
                if isinstance(row, Malformed):
                    found.add("malformed", [f"{row.file} line {row.line}: {row.reason}"])
                    if self._problems.stops_at("malformed"):
                        break
                elif not row.text.strip():
                    found.add("empty_passages", [row.passage_id])
                else:
                    rows.append(row)
                if len(rows) == ROWS_AT_ONCE:
                    num_passages += self._write(writer, rows)
                    rows = []
            num_passages += self._write(writer, rows)
            facts = {"num_passages": num_passages, "problems": found.counts}
            writer.add_key_value_metadata({FACTS: json.dumps(facts).encode()})
        return facts

    def _write(self, writer: pq.ParquetWriter, rows: list[Passage]) -> int:
        if rows:
            passage_ids, texts = zip(*rows, strict=True)
            columns = [pa.array(passage_ids, pa.string()), pa.array(texts, pa.large_string()), self._encode(texts)]
            writer.write_table(pa.Table.from_arrays(columns, schema=PASSAGES))
        return len(rows)


def _write_passages(config: PipelineConfig, artifact: Artifact, source: Source, problems: Problems) -> list[str]:
    """Write the shards and return the names of those that make up the corpus, each passage id once."""
    parts = source.parts(config.dataset.part_bytes)
    names = [f"passages/part-{number:05d}.parquet" for number in range(len(parts))]
    items = [{"name": name, "part": list(part)} for name, part in zip(names, parts, strict=True)]
    num_passages = 0
    with progress("corpus", len(items), "parts") as advance:
        for facts in make_missing(
            artifact,
            items,
            PassageWriter,
            {"artifact": artifact, "dataset": config.dataset, "text": config.text},
            actors=config.resources.readers,
            cpus=1,
            label="corpus",
        ):
            num_passages += facts["num_passages"]
            for kind, entry in facts["problems"].items():
                problems.add(kind, entry["examples"], entry["count"])
            problems.stop_if_decided()
            advance(1)
    if not num_passages:
        raise DatasetError(f"The dataset {config.dataset.source} has no passages: check its corpus files.")
    return _without_repeats(artifact, names, num_passages, source, problems)


def _without_repeats(
    artifact: Artifact, names: list[str], num_passages: int, source: Source, problems: Problems
) -> list[str]:
    """Return shards in which each passage id occurs once: a copy without repeats replaces a shard that has some."""
    repeated = repeated_rows(artifact, names, num_passages)
    if not source.repeats_passages:
        for name, rows in repeated.items():
            ids = artifact.read_table(name, ["passage_id"])["passage_id"].take(rows[:EXAMPLES]).to_pylist()
            problems.add("duplicate_passages", ids, len(rows))
        problems.stop_if_decided()
    kept = {name: name.replace("passages/", "unique/") for name in repeated}
    for name, rows in repeated.items():
        copy_without(artifact, name, kept[name], rows)
    return [kept.get(name, name) for name in names]


def _of_known_passages(artifact: Artifact, shards: list[str], judged: Judged, problems: Problems) -> Judged:
    wanted = {judgment.passage_id for judgment in judged.judgments}
    unknown = wanted - present_ids(artifact, shards, wanted)
    lost = [judgment for judgment in judged.judgments if judgment.passage_id in unknown]
    problems.add("unknown_passages", [f"query {row.query_id}, passage {row.passage_id}" for row in lost])
    return judged._replace(judgments=[row for row in judged.judgments if row.passage_id not in unknown])


def _tokenizer(artifact: Artifact) -> str:
    with artifact.open("tokenizer/tokenizer.json") as stream:
        return stream.read().decode()


def _write_judged(artifact: Artifact, text: TextConfig, judged: Judged, hidden: list[Judgment]) -> None:
    columns = {
        name: [getattr(query, name) for query in judged.queries] for name in QUERIES.names if name != "piece_ids"
    }
    columns["piece_ids"] = PieceEncoder(_tokenizer(artifact), text.query_pieces)(columns["text"])
    artifact.write_table("queries.parquet", pa.table(columns, schema=QUERIES))
    for name, rows in (("judgments.parquet", judged.judgments), ("hidden.parquet", hidden)):
        artifact.write_table(name, pa.Table.from_pylist([row._asdict() for row in rows], schema=JUDGMENTS))


def _splits(judged: Judged) -> dict[str, dict[str, int]]:
    queries = Counter(query.split for query in judged.queries)
    judgments = Counter(judgment.split for judgment in judged.judgments)
    return {split: {"num_queries": queries[split], "num_judgments": judgments[split]} for split in sorted(queries)}
