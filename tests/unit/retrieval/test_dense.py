"""Exact dense search."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.retrieval import dense
from rayrank.retrieval.dense import VectorIndex, exact_search


def _vectors(count: int, seed: int, size: int = 24) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, size)).astype(np.float16)


@pytest.mark.parametrize("num_blocks", [1, 3, 7])
@pytest.mark.parametrize("depth", [1, 10, 500])
def test_exact_search_equals_a_brute_force_matrix_product(
    num_blocks: int, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "SCORES_AT_ONCE", 700)  # several slices of queries a block
    queries, passages = _vectors(17, 1), _vectors(300, 2)
    found = exact_search(queries, np.array_split(passages, num_blocks), depth, "cpu")
    scores = queries.astype(np.float32) @ passages.astype(np.float32).T
    order = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    assert (found.rows == order).all()
    np.testing.assert_allclose(found.scores, np.take_along_axis(scores, order, 1), rtol=1e-5, atol=1e-5)


def test_equal_scores_are_ordered_by_row_whatever_the_blocks() -> None:
    queries, passages = _vectors(3, 1), np.repeat(_vectors(5, 2), 4, axis=0)
    found = [exact_search(queries, np.array_split(passages, parts), 20, "cpu") for parts in (1, 2, 6)]
    for other in found[1:]:
        assert (found[0].rows == other.rows).all()
    same = np.diff(found[0].scores, axis=1) == 0
    assert (np.diff(found[0].rows, axis=1)[same] > 0).all()


def test_a_corpus_smaller_than_the_depth_returns_all_of_it() -> None:
    found = exact_search(_vectors(2, 1), [_vectors(3, 2)], 10, "cpu")
    assert found.rows.shape == (2, 3)
    assert sorted(found.rows[0]) == [0, 1, 2]


def test_the_vectors_of_the_queries_are_read_once_for_all_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact, vectors = Artifact(str(tmp_path), "embeddings", "key"), _vectors(6, 1)
    for part in range(3):
        column = pa.FixedSizeListArray.from_arrays(vectors[2 * part : 2 * part + 2].ravel(), vectors.shape[1])
        ids = pa.array([f"q{2 * part}", f"q{2 * part + 1}"])
        artifact.write_table(f"queries/part-{part}.parquet", pa.table({"id": ids, "vector": column}))
    artifact.write_json(MANIFEST, {"shards": []})
    read: list[str] = []
    monkeypatch.setattr(dense, "read_vectors", lambda *args, read_vectors=dense.read_vectors: (
        read.append(args[1]) or read_vectors(*args)
    ))  # fmt: skip
    index = VectorIndex(artifact)

    for rows in ([5, 0], [3], [2, 2]):
        found = index.query_vectors(pa.array([f"q{row}" for row in rows]))
        assert (found == vectors[rows]).all()

    assert len(read) == len(set(read)) == 3
