"""Checks over all passages of a corpus in bounded memory: repeated ids, and which judged ids exist."""

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayrank.core.artifacts import PARQUET, Artifact
from rayrank.core.progress import progress

HASHES_AT_ONCE = 1 << 25
"""How many 8-byte hashes are in memory at once; a larger corpus is read several times."""


def repeated_rows(artifact: Artifact, names: list[str], num_passages: int) -> dict[str, list[int]]:
    """Return for each shard the rows whose passage id occurs earlier in the corpus."""
    repeated: dict[str, list[int]] = defaultdict(list)
    rounds = -(-num_passages // HASHES_AT_ONCE)
    with progress("corpus: check ids", rounds * len(names), "shards") as advance:
        for turn in range(rounds):
            suspects = _hashes_seen_twice(artifact, names, turn, rounds, advance)
            for name, rows in _rows_seen_before(artifact, names, suspects) if len(suspects) else ():
                repeated[name] += rows
    return repeated


def _hashes_seen_twice(
    artifact: Artifact, names: list[str], turn: int, rounds: int, advance: Callable[[int], None]
) -> np.ndarray:
    parts = []
    for name in names:
        parts += [hashes[hashes % rounds == turn] for _, _, hashes in _hashed_ids(artifact, name)]
        advance(1)
    values, counts = np.unique(np.concatenate(parts), return_counts=True)
    return values[counts > 1]


def _rows_seen_before(artifact: Artifact, names: list[str], suspects: np.ndarray) -> Iterator[tuple[str, list[int]]]:
    """Yield rows whose id occurred before; equal hashes alone do not count."""
    seen: set[str] = set()
    for name in names:
        for start, ids, hashes in _hashed_ids(artifact, name):
            rows = []
            for row in np.flatnonzero(np.isin(hashes, suspects)).tolist():
                passage_id = ids[row].as_py()
                if passage_id in seen:
                    rows.append(start + row)
                seen.add(passage_id)
            if rows:
                yield name, rows


def _hashed_ids(artifact: Artifact, name: str) -> Iterator[tuple[int, pa.Array, np.ndarray]]:
    start = 0
    for batch in artifact.batches(name, ["passage_id"]):
        ids = batch.column(0)
        yield start, ids, pd.util.hash_array(ids.to_numpy(zero_copy_only=False), categorize=False)
        start += len(ids)


def copy_without(artifact: Artifact, name: str, target: str, rows: list[int]) -> None:
    """Write a shard under another name, without these rows."""
    drop = np.array(rows)
    schema = artifact.metadata(name).schema.to_arrow_schema().remove_metadata()
    with artifact.create(target) as copy, pq.ParquetWriter(copy, schema, **PARQUET) as writer:
        start = 0
        for batch in artifact.batches(name, None):
            keep = ~np.isin(np.arange(start, start + len(batch)), drop)
            writer.write_batch(batch.filter(pa.array(keep)))
            start += len(batch)


def present_ids(artifact: Artifact, names: list[str], wanted: set[str]) -> set[str]:
    """Return the wanted passage ids that exist in the corpus."""
    values = pa.array(sorted(wanted), pa.string())
    found: set[str] = set()
    with progress("corpus: check judgments", len(names), "shards") as advance:
        for name in names:
            for batch in artifact.batches(name, ["passage_id"]):
                ids = batch.column(0)
                found.update(ids.filter(pc.is_in(ids, value_set=values)).to_pylist())
            advance(1)
    return found
