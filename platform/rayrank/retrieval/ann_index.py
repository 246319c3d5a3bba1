"""The approximate index of a dense run, on storage: built once, opened by the workers and by the endpoint."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from rayrank.core.artifacts import Artifact
from rayrank.core.copies import temporary_folder
from rayrank.core.drafts import remove_folders
from rayrank.retrieval import ann
from rayrank.retrieval.dense import Found, Vectors, read_vectors

SAMPLE = 1000
"""Queries on which the recall of approximate search is measured."""

FACTS = "ann.json"
"""The file with facts about the finished index, among them its folder."""

FILE = "passages.faiss"
PREFIX = "ann-"
"""Prefix of the folders that hold an index."""


def make_index(run: Artifact, vectors: Artifact, recall: float) -> dict[str, Any]:
    """Return facts about the approximate index of a run; build it from the passages' vectors if it is missing."""
    if run.exists(FACTS):
        return run.read_json(FACTS)  # type: ignore[no-any-return]
    shards = vectors.manifest["shards"]
    queries = np.concatenate([read_vectors(vectors, name)[1] for name in vectors.names("queries")])
    sampled = np.random.default_rng(0).permutation(len(queries))[:SAMPLE]
    built = ann.build(
        lambda: (read_vectors(vectors, name)[1] for name in shards),
        vectors.manifest["num_passages"],
        queries[sampled],
        recall,
    )
    # Each attempt copies its index into a folder of its own; the facts name the folder of the one that ended.
    facts = {**built.facts, "folder": f"{PREFIX}{uuid.uuid4().hex[:8]}"}
    with temporary_folder() as folder:
        faiss.write_index(built.index, str(folder / FILE))
        run.put_folder(str(folder), facts["folder"])
    remove_folders(*run.place, PREFIX, keep=facts["folder"])
    run.write_json(FACTS, facts)
    return facts


def open_index(run: Artifact, facts: dict[str, Any]) -> Callable[[Vectors, int], Found]:
    """Open the stored index, mapped into memory; return a function that searches it for (queries, depth)."""
    path = Path(run.local(facts["folder"])) / FILE
    index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
    return lambda queries, depth: ann.search(index, queries, depth, facts["probes"])
