"""Passage fields: the numeric fields of all passages that `dataset.fields` names, for runs of kind fuse."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PASSAGE_ID, PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress
from rayrank.core.records import Malformed
from rayrank.data.ids import Lookup
from rayrank.data.problems import Problems
from rayrank.data.sources import open_source
from rayrank.data.sources.source import Part, Source

AT_ONCE = 65_536
FILE = "fields.parquet"


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the artifact with fields.parquet: passage_id and one column per field, null where a passage has none.

    The passages are those of the corpus. It is an artifact of its own, so that a new field changes neither the corpus
    nor what is trained on it.
    """
    if done := store.find("passage_fields", config):
        return done
    started = time.monotonic()
    artifact, corpus = store.artifact("passage_fields", config), store.require("corpus", config)
    shards = [corpus.read_table(name, [PASSAGE_ID])[PASSAGE_ID] for name in corpus.manifest["shards"]]
    passage_ids = pa.chunked_array([chunk for shard in shards for chunk in shard.chunks], pa.string())
    source, names = open_source(config.dataset), config.dataset.fields
    values = np.full((len(names), len(passage_ids)), np.nan)
    problems = _read(source, config, Lookup(passage_ids), values)
    found = np.count_nonzero(~np.isnan(values), axis=1).tolist()
    for name, count in zip(names, found, strict=True):
        if not count:
            raise DatasetError(
                f"dataset.fields={name} cannot be used: no passage of {config.dataset.source} has a value of it, in "
                f"its row or in its metadata; name another field."
            )
    columns = [pa.array(column, pa.float64(), from_pandas=True) for column in values]
    artifact.write_table(FILE, pa.Table.from_arrays([passage_ids, *columns], names=[PASSAGE_ID, *names]))
    facts = {"num_passages": len(passage_ids), "num_values": dict(zip(names, found, strict=True))}
    return store.finish(artifact, config, started, {**facts, "problems": problems.report()})


def _read(source: Source, config: PipelineConfig, lookup: Lookup, values: NDArray[np.float64]) -> Problems:
    """Fill in the values of all passages; the first row of a passage counts, as in the corpus."""
    problems, seen = Problems(config.dataset), np.zeros(values.shape[1], np.bool_)
    with progress("passage fields", None, "passages") as advance:
        for part in source.parts(config.dataset.part_bytes):
            for ids, numbers in _blocks(source, part, config, problems):
                rows = lookup(pa.array(ids, pa.string()))
                _, first = np.unique(rows, return_index=True)
                first = first[(rows[first] >= 0) & ~seen[rows[first]]]
                values[:, rows[first]], seen[rows[first]] = numbers[first].T, True
                advance(len(ids))
    return problems


def _blocks(source: Source, part: Part, config: PipelineConfig, problems: Problems) -> Any:
    """Yield passage ids and their values, NaN for none, some rows at a time."""
    ids: list[str] = []
    numbers: list[tuple[float | None, ...]] = []
    for row in source.fields(part, config.dataset.fields):
        if isinstance(row, Malformed):
            problems.add_malformed(row)
            continue
        ids.append(row.passage_id)
        numbers.append(row.values)
        if len(ids) == AT_ONCE:
            yield ids, np.array(numbers, np.float64)
            ids, numbers = [], []
    if ids:
        yield ids, np.array(numbers, np.float64)
