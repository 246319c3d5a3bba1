"""Provided: a first stage that takes over the candidates that come with a dataset, such as MS MARCO's top1000."""

from collections import Counter
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress
from rayrank.core.records import CANDIDATES, Candidate, Malformed
from rayrank.core.run_kinds import RunInMaking, RunKind, RunSettings
from rayrank.data.problems import Problems
from rayrank.data.sources import candidates_digest, open_source

ROWS_AT_ONCE = 1_000_000


class ProvidedSettings(RunSettings):
    """The files are part of the dataset; only their digest is kept here."""

    fingerprint: str = Field(default="", description="digest of the files, filled in when a job starts")


class Provided(RunKind):
    """All candidates of the dataset's own files. MS MARCO shuffled its files, so `candidates.depth` does not apply."""

    Settings = ProvidedSettings
    has_scores = False

    def is_first_stage(self, settings: ProvidedSettings, config: PipelineConfig) -> bool:
        return True

    def inputs(self, settings: ProvidedSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus",)

    def digest(self, settings: ProvidedSettings, config: PipelineConfig) -> str:
        return candidates_digest(open_source(config.dataset))

    def make(self, run: RunInMaking) -> dict[str, Any]:
        return write_provided(run.config, run.store.require("corpus", run.config), run.artifact)


def write_provided(config: PipelineConfig, corpus: Artifact, artifact: Artifact) -> dict[str, Any]:
    """Write the source's own candidates, split by split."""
    problems = Problems(config.dataset)
    queries = corpus.read_table("queries.parquet", ["query_id", "split"])
    splits = dict(zip(queries["query_id"].to_pylist(), queries["split"].to_pylist(), strict=True))
    # Only the ids, read once for all chunks.
    known = pa.concat_arrays(
        [batch.column(0) for name in corpus.manifest["shards"] for batch in corpus.batches(name, ["passage_id"])]
    )
    rows = iter(open_source(config.dataset).candidates())
    files: Counter[str] = Counter()
    seen: set[str] = set()
    num_candidates = 0
    with progress("candidates", None, "rows") as advance:
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            kept = _usable(chunk, splits, known, problems)
            for split in sorted({splits[row.query_id] for row in kept}):
                part = [row for row in kept if splits[row.query_id] == split]
                table = pa.Table.from_pylist([row._asdict() for row in part], schema=CANDIDATES)
                artifact.write_table(f"{split}/part-{files[split]:05d}.parquet", table)
                files[split] += 1
            seen.update(row.query_id for row in kept)
            num_candidates += len(kept)
            advance(len(chunk))
    if not num_candidates:
        raise DatasetError(
            f"The dataset {config.dataset.source} comes with no candidates: use --set candidates.first_stage=bm25."
        )
    without = sum(query_id not in seen for query_id, split in splits.items() if split in files)
    return {
        "num_queries": len(seen) + without,
        "num_candidates": num_candidates,
        "num_without_results": without,
        "problems": problems.report(),
    }


def _usable(
    chunk: list[Candidate | Malformed], splits: dict[str, str], known: pa.Array, problems: Problems
) -> list[Candidate]:
    rows: list[Candidate] = []
    for row in chunk:
        if isinstance(row, Malformed):
            problems.add_malformed(row)
        elif row.query_id not in splits:
            problems.add("unknown_queries", [f"query {row.query_id} among the candidates"])
        else:
            rows.append(row)
    there = pc.is_in(pa.array([row.passage_id for row in rows], pa.string()), value_set=known).to_pylist()
    lost = [row for row, found in zip(rows, there, strict=True) if not found]
    problems.add("unknown_passages", [f"passage {row.passage_id} among the candidates" for row in lost])
    problems.stop_if_decided()
    return [row for row, found in zip(rows, there, strict=True) if found]
