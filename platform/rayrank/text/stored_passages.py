"""The passages of a corpus as word-piece ids that the processes of a node share.

The first process of a node that needs them writes them to flat files on the node's own disk, and all processes map
these files into memory: the ids exist once a node, whatever the number of processes. What is read often stays in memory
as the operating system's file cache, which gives way when memory is needed.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rayrank.core.artifacts import Artifact, digest_of
from rayrank.core.copies import node_folder
from rayrank.text.ragged import Ids, Ragged

_NAMES, _PIECES, _OFFSETS = "passage_ids.arrow", "piece_ids.int32", "offsets.npy"


class StoredPassages(NamedTuple):
    """All passages of a corpus; row i of one is row i of the other."""

    ids: pa.Array
    pieces: Ragged


def stored_passages(corpus: Artifact) -> StoredPassages:
    """Return the passages of a finished corpus, mapped from this node's disk."""
    # Two storages may hold different corpora under one key, for example of two versions of the code.
    identity = digest_of([corpus.url, corpus.manifest])
    folder = node_folder(f"corpus-{identity}", "passages", partial(_write, corpus))
    (names,) = pa.ipc.open_file(pa.memory_map(str(folder / _NAMES))).read_all().columns
    return StoredPassages(
        names.chunk(0), Ragged(_mapped(folder / _PIECES), np.asarray(np.load(folder / _OFFSETS, mmap_mode="r")))
    )


def _write(corpus: Artifact, folder: Path) -> None:
    """Write the passages to a local folder, a batch at a time."""
    names, lengths = [], [np.zeros(1, np.int64)]
    with (folder / _PIECES).open("wb") as stream:
        for shard in corpus.manifest["shards"]:
            for batch in corpus.batches(shard, ["passage_id", "piece_ids"]):
                pieces = Ragged.from_arrow(pa.chunked_array([batch["piece_ids"]]))
                stream.write(pieces.flat().data)
                names.append(batch["passage_id"])
                lengths.append(pieces.lengths())
    offsets = np.cumsum(np.concatenate(lengths))
    with (folder / _OFFSETS).open("wb") as stream:
        # Not np.save: where a disk is full, it raises an error that does not say so.
        np.lib.format.write_array_header_1_0(stream, np.lib.format.header_data_from_array_1_0(offsets))
        stream.write(offsets.data)
    batch = pa.record_batch({"passage_id": pa.concat_arrays(names or [pa.array([], pa.string())])})
    with pa.OSFile(str(folder / _NAMES), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _mapped(file: Path) -> Ids:
    """Return a file of ids as an array; an empty file cannot be mapped."""
    return np.asarray(np.memmap(file, np.int32, "r")) if file.stat().st_size else np.empty(0, np.int32)
