"""Approximate dense search."""

import numpy as np
import pytest

from rayrank.retrieval import ann
from rayrank.retrieval.dense import Found, exact_search


def _clustered(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(40, 32))
    vectors = centres[rng.integers(0, len(centres), count)] + 0.4 * rng.normal(size=(count, 32))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def built() -> tuple[np.ndarray, np.ndarray, ann.Built]:
    passages, queries = _clustered(6000, 1), _clustered(50, 2)
    return passages, queries, ann.build(lambda: np.array_split(passages, 5), 6000, queries, recall=0.95)


def test_an_index_reaches_the_recall_that_is_asked_for(built: tuple[np.ndarray, np.ndarray, ann.Built]) -> None:
    passages, queries, index = built
    exact = exact_search(queries, [passages], 100, "cpu")
    found = ann.search(index.index, queries, 100, index.facts["probes"])
    assert ann.recall_of(found, exact) == pytest.approx(index.facts["recall@100"])
    assert index.facts["recall@100"] >= 0.95
    assert index.facts["probes"] < index.facts["clusters"]


def test_all_clusters_give_the_exact_scores(built: tuple[np.ndarray, np.ndarray, ann.Built]) -> None:
    passages, queries, index = built
    exact = exact_search(queries, [passages], 10, "cpu")
    found = ann.search(index.index, queries, 10, index.facts["clusters"])
    np.testing.assert_allclose(found.scores, exact.scores, atol=1e-3)


def _found(scores: list[list[float]], rows: list[list[int]]) -> Found:
    return Found(np.array(scores, np.float32), np.array(rows))


def test_recall_counts_the_exact_answers_that_were_found() -> None:
    exact = _found([[0.9, 0.8, 0.7], [0.9, 0.8, 0.7]], [[3, 4, 1], [7, 8, 9]])
    found = _found([[0.9, 0.7, 0.6], [0.9, 0.8, -1.0]], [[3, 1, 2], [7, 8, -1]])
    assert ann.recall_of(found, exact) == pytest.approx(2 / 3)


def test_recall_counts_a_passage_with_the_score_of_the_last_exact_answer() -> None:
    assert ann.recall_of(_found([[0.9, 0.7]], [[3, 5]]), _found([[0.9, 0.7]], [[3, 4]])) == 1


def test_a_corpus_smaller_than_the_depth_can_reach_the_recall() -> None:
    passages, queries = _clustered(60, 1), _clustered(5, 2)
    assert ann.build(lambda: [passages], 60, queries, recall=1.0).facts["recall@100"] == 1
