"""Checks over all passages of a corpus in bounded memory: repeated ids, and which judged ids exist."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rayrank.artifacts import Artifact

HASHES_AT_ONCE = 1 << 25
"""Eight bytes each; a larger corpus is looked through in several rounds."""


def repeated_rows(artifact: Artifact, names: list[str], num_rows: int) -> dict[str, list[int]]:
    """Return for each shard the rows whose passage id stood earlier in the corpus."""
    repeated: dict[str, list[int]] = defaultdict(list)
    rounds = -(-num_rows // HASHES_AT_ONCE)
    for turn in range(rounds):
        suspects = _hashes_seen_twice(artifact, names, turn, rounds)
        if not len(suspects):
            continue
        seen: set[str] = set()
        for name, start, ids, hashes in _hashed_ids(artifact, names):
            for row in np.flatnonzero(np.isin(hashes, suspects)):
                passage_id = ids[int(row)].as_py()
                if passage_id in seen:
                    repeated[name].append(start + int(row))
                seen.add(passage_id)
    return repeated


def _hashes_seen_twice(artifact: Artifact, names: list[str], turn: int, rounds: int) -> np.ndarray:
    parts = [hashes[hashes % rounds == turn] for *_, hashes in _hashed_ids(artifact, names)]
    values, counts = np.unique(np.concatenate(parts), return_counts=True)
    return values[counts > 1]


def _hashed_ids(artifact: Artifact, names: list[str]) -> Iterator[tuple[str, int, pa.Array, np.ndarray]]:
    for name in names:
        start = 0
        for batch in artifact.batches(name, ["passage_id"]):
            ids = batch.column(0)
            yield name, start, ids, pd.util.hash_array(ids.to_numpy(zero_copy_only=False), categorize=False)
            start += len(ids)


def drop_rows(artifact: Artifact, name: str, rows: list[int], footer: dict[bytes, bytes]) -> None:
    """Rewrite a shard without these rows and with a new footer."""
    drop = np.array(rows)
    with artifact.open(name) as stream, artifact.create(name) as target:
        shard = pq.ParquetFile(stream)
        with pq.ParquetWriter(target, shard.schema_arrow.remove_metadata(), compression="zstd") as writer:
            start = 0
            for batch in shard.iter_batches():
                keep = ~np.isin(np.arange(start, start + len(batch)), drop)
                writer.write_batch(batch.filter(pa.array(keep)))
                start += len(batch)
            writer.add_key_value_metadata(footer)


def present_ids(artifact: Artifact, names: list[str], wanted: set[str]) -> set[str]:
    """Return those of the wanted passage ids that the corpus has."""
    values = pa.array(sorted(wanted), pa.string())
    found: set[str] = set()
    for name in names:
        for batch in artifact.batches(name, ["passage_id"]):
            ids = batch.column(0)
            found.update(ids.filter(pc.is_in(ids, value_set=values)).to_pylist())
    return found
