"""File: a first stage that takes over the ranking of another system from its run files."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pydantic import Field, field_validator

from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.paths import absolute_path
from rayrank.core.progress import progress
from rayrank.core.records import CANDIDATES
from rayrank.core.run_kinds import FirstStageSettings, RunInMaking, RunKind, depth_key, depth_of
from rayrank.data.ids import PairLookup
from rayrank.data.problems import EXAMPLES, Problems
from rayrank.data.rows import ranks_within_query
from rayrank.data.run_formats import Block, RunFile, files_digest, find_files
from rayrank.runs.query_parts import searched_queries

ROWS_PER_FILE = 1_000_000


class FileSettings(FirstStageSettings):
    """Where the run files are. Their digest is in the key of the run, their paths are not."""

    paths: tuple[str, ...] = Field(
        min_length=1,
        description="run files, folders or patterns, in TREC, Parquet, or MS MARCO's run or top1000 format; may be .gz",
    )
    fingerprint: str = Field(default="", description="digest of the files, filled in when a job starts")

    @field_validator("paths", mode="before")
    @classmethod
    def _absolute(cls, paths: Any) -> Any:
        """Take one path or several, and make them absolute: Ray workers run in other working directories."""
        if isinstance(paths, str):
            return [absolute_path(paths)]
        if not isinstance(paths, list | tuple):
            return paths
        return [absolute_path(path) if isinstance(path, str) else path for path in paths]


class File(RunKind):
    """The rows of run files, sorted by score and then by rank, for the queries that first stages search for.

    All rows of a query must be in one file. In a file with ranks alone the score is the negative rank. Passages of MS
    MARCO's top1000, which has neither, are all kept whatever the depth, because MS MARCO shuffled them.
    """

    Settings = FileSettings

    def is_first_stage(self, settings: FileSettings, config: PipelineConfig) -> bool:
        return True

    def inputs(self, settings: FileSettings, config: PipelineConfig) -> tuple[str, ...]:
        return ("corpus",)

    def digest(self, settings: FileSettings, config: PipelineConfig) -> str:
        return files_digest(settings.paths)

    def key(self, settings: FileSettings, config: PipelineConfig) -> dict[str, Any]:
        chosen = {**super().key(settings, config), **depth_key(settings, config)}
        del chosen["paths"]
        return chosen

    def make(self, run: RunInMaking) -> dict[str, Any]:
        corpus, problems = run.store.require("corpus", run.config), Problems(run.config.dataset, run.name)
        ids = _ids(corpus)
        reader, writer = _Reader(*ids, problems), _Writer(run, corpus, *ids)
        with progress(run.name, None, "rows") as advance:
            for path in find_files(run.settings.paths):
                file = RunFile(path)
                rows = reader.read(file)
                writer.write(rows, file)
                advance(len(rows.queries))
        if not writer.num_candidates:
            raise DatasetError(
                f"The run {run.name} has no rows of this dataset's queries: change runs.{run.name}.paths, or --dataset."
            )
        return {**writer.facts(), "problems": problems.report()}


class _Rows(NamedTuple):
    """Rows of a run file.

    Queries and passages are given as row numbers in the corpus, and `numbers` are line numbers in the file.
    """

    queries: NDArray[np.int32]
    passages: NDArray[np.int32]
    ranks: NDArray[np.int32]
    scores: NDArray[np.float32]
    numbers: NDArray[np.int64]

    def take(self, places: NDArray[Any]) -> "_Rows":
        return _Rows(*(column[places] for column in self))


class _Reader:
    """Reads run files and checks their ids against the corpus."""

    def __init__(self, query_ids: pa.Array, passage_ids: pa.Array, problems: Problems) -> None:
        self._rows_of, self._problems = PairLookup(query_ids, passage_ids), problems
        self._query_ids, self._passage_ids = query_ids, passage_ids

    def read(self, file: RunFile) -> _Rows:
        """Return a file's rows of known queries and passages, best first within each query."""
        empty = np.empty(0, np.int32)
        parts = [_Rows(empty, empty, empty, np.empty(0, np.float32), np.empty(0, np.int64))]
        parts += map(partial(self._known, file), file.blocks())
        rows = _Rows(*map(np.concatenate, zip(*parts, strict=True)))
        # Sorted by pair, so that a repeated row follows the first one; stable, so that the error names the later line.
        rows = rows.take(np.argsort(rows.queries.astype(np.int64) << 32 | rows.passages, kind="stable"))
        again = np.flatnonzero((np.diff(rows.queries) == 0) & (np.diff(rows.passages) == 0)) + 1
        if again.size:
            row = again[rows.numbers[again].argmin()]
            query_id, passage_id = self._query_ids[rows.queries[row]], self._passage_ids[rows.passages[row]]
            reason = f"the passage {passage_id.as_py()!r} occurs twice for the query {query_id.as_py()!r}"
            file.stop(int(rows.numbers[row]), reason)
        return rows.take(np.lexsort((rows.numbers, rows.ranks, -rows.scores, rows.queries)))

    def _known(self, file: RunFile, block: Block) -> _Rows:
        queries, passages = self._rows_of(block.rows)
        for kind, unknown in (("queries", queries < 0), ("passages", (queries >= 0) & (passages < 0))):
            places = np.flatnonzero(unknown)
            ids = block.rows["query_id" if kind == "queries" else "passage_id"].take(places[:EXAMPLES]).to_pylist()
            named = [f"{name} in {file.place(block.numbers[place])}" for name, place in zip(ids, places, strict=False)]
            self._problems.add(f"unknown_run_{kind}", named, len(places))
        self._problems.stop_if_decided()
        known = np.flatnonzero((queries >= 0) & (passages >= 0))
        ranks, scores = block.rows["rank"].to_numpy(), block.rows["score"].to_numpy()
        numbers = [queries.astype(np.int32), passages.astype(np.int32), ranks, scores, block.numbers]
        return _Rows(*(column[known] for column in numbers))


class _Writer:
    """Divides rows into splits by the corpus's queries and stores them, each query within one file."""

    def __init__(self, run: RunInMaking, corpus: Artifact, query_ids: pa.Array, passage_ids: pa.Array) -> None:
        self._run = run
        self._query_ids, self._passage_ids = query_ids, passage_ids
        searched, _ = searched_queries(corpus)
        place = pc.index_in(self._query_ids, value_set=searched["query_id"].combine_chunks()).fill_null(-1).to_numpy()
        splits = searched["split"].combine_chunks().dictionary_encode()
        self._splits: list[str] = splits.dictionary.to_pylist()
        # Queries that first stages do not search for get the code after the last split.
        self._split_of = np.append(splits.indices.to_numpy(), len(self._splits))[place]
        depths = [depth_of(run.settings, run.config, split) for split in [*self._splits, ""]]
        self._depth_of = np.array(depths)[self._split_of]
        self._file_of = np.full(len(self._query_ids), -1)
        self._paths: list[str] = []
        self._num_files: Counter[str] = Counter()
        self._findings: list[str] = []
        self.num_candidates = 0

    def write(self, rows: _Rows, file: RunFile) -> None:
        """Store a file's rows, which are sorted by query and best first."""
        self._check_one_file(rows, file)
        positions = ranks_within_query(rows.queries)
        if file.is_ranked:
            self._note_contradictions(rows, file)
            kept = positions <= self._depth_of[rows.queries]
        else:
            kept, rows = positions > 0, rows._replace(scores=-positions.astype(np.float32))
            self._note(f"{file.path} has neither ranks nor scores, so all its passages are kept, in the file's order")
        for code, split in enumerate(self._splits):
            places = np.flatnonzero(kept & (self._split_of[rows.queries] == code))
            for part in _parts(rows.queries[places]):
                self._write_part(split, rows.take(places[part]), positions[places[part]])

    def facts(self) -> dict[str, Any]:
        """Return the facts for the manifest; the findings name some of the queries without rows."""
        without = 0
        for code, split in enumerate(self._splits):
            of_split = self._split_of == code
            missing = np.flatnonzero(of_split & (self._file_of < 0)) if self._num_files[split] else np.empty(0, int)
            without += len(missing)
            if len(missing):
                names = ", ".join(self._query_ids.take(missing[:EXAMPLES]).to_pylist())
                self._note(f"{len(missing):,} of {of_split.sum():,} {split} queries have no rows, such as {names}")
        found = int(((self._file_of >= 0) & (self._split_of < len(self._splits))).sum())
        counts = {"num_queries": found + without, "num_candidates": self.num_candidates, "num_without_results": without}
        return {**counts, "findings": self._findings}

    def _write_part(self, split: str, rows: _Rows, positions: NDArray[np.int64]) -> None:
        ids = [self._query_ids.take(rows.queries), self._passage_ids.take(rows.passages)]
        table = pa.table([*ids, pa.array(positions, pa.int32()), rows.scores], schema=CANDIDATES)
        self._run.artifact.write_table(f"{split}/part-{self._num_files[split]:05d}.parquet", table)
        self._num_files[split] += 1
        self.num_candidates += len(table)

    def _check_one_file(self, rows: _Rows, file: RunFile) -> None:
        again = np.flatnonzero(self._file_of[rows.queries] >= 0)
        if again.size:
            query = rows.queries[again[rows.numbers[again].argmin()]]
            other = self._paths[self._file_of[query]]
            file.stop(
                int(rows.numbers[again].min()), f"the query {self._query_ids[query].as_py()!r} is in {other}, too"
            )
        self._file_of[rows.queries] = len(self._paths)
        self._paths.append(file.path)

    def _note_contradictions(self, rows: _Rows, file: RunFile) -> None:
        wrong = (np.diff(rows.queries) == 0) & (np.diff(rows.scores) < 0) & (np.diff(rows.ranks) < 0)
        if file.has_ranks and wrong.any():
            count = len(np.unique(rows.queries[1:][wrong]))
            names = "query" if count == 1 else "queries"
            self._note(f"in {count:,} {names} of {file.path} ranks contradict scores; scores count, as in trec_eval")

    def _note(self, sentence: str) -> None:
        self._findings.append(f"{self._run.name}: {sentence}")


def _ids(corpus: Artifact) -> tuple[pa.Array, pa.Array]:
    """Return the ids of all queries and of all passages."""
    queries = corpus.read_table("queries.parquet", ["query_id"])["query_id"].combine_chunks()
    shards = [batch.column(0) for name in corpus.manifest["shards"] for batch in corpus.batches(name, ["passage_id"])]
    return queries, pa.concat_arrays(shards)


def _parts(queries: NDArray[np.int32]) -> Iterator[slice]:
    """Yield the rows of each output file as a slice: whole queries, about ROWS_PER_FILE rows per file."""
    begins = np.flatnonzero(np.diff(queries, prepend=-1))
    cuts = begins[np.flatnonzero(np.diff(begins // ROWS_PER_FILE, prepend=-1))].tolist()
    yield from map(slice, cuts, [*cuts[1:], len(queries)])
