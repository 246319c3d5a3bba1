"""The examples of a query are a function of (seed, phase, epoch, query)."""

import numpy as np
import pytest

from rayrank.core.config import ListwiseConfig
from rayrank.training.draws import draw, draw_by_weight, generator
from rayrank.training.phases.listwise import query_list
from rayrank.training.phases.pointwise import query_pairs

POSITIVES, NEGATIVES = np.array([3, 8]), np.array([10, 11, 12, 13, 14, 15, 16])


def test_a_stream_depends_on_seed_phase_epoch_and_query() -> None:
    first = generator(1, "listwise", 2, 3).permutation(1000)

    assert (generator(1, "listwise", 2, 3).permutation(1000) == first).all()
    for other in ((9, "listwise", 2, 3), (1, "pointwise", 2, 3), (1, "listwise", 9, 3), (1, "listwise", 2, 9)):
        assert (generator(*other).permutation(1000) != first).any()


def test_a_draw_is_without_replacement_and_takes_all_if_there_are_too_few() -> None:
    drawn = draw(NEGATIVES, 5, generator(0, "pointwise", 0, 0))

    assert len(set(drawn.tolist())) == 5
    assert set(drawn.tolist()) <= set(NEGATIVES.tolist())
    assert sorted(draw(NEGATIVES, 50, generator(0, "pointwise", 0, 0)).tolist()) == NEGATIVES.tolist()


def test_pairs_of_a_query_hold_every_positive_and_the_configured_ratio_of_negatives() -> None:
    queries, passages, labels = query_pairs(7, POSITIVES, NEGATIVES, 3, generator(0, "pointwise", 0, 7))

    assert set(queries.tolist()) == {7}
    assert passages[labels == 1].tolist() == POSITIVES.tolist()
    assert (labels == 0).sum() == 6
    assert not set(passages[labels == 0].tolist()) & set(POSITIVES.tolist())


@pytest.mark.parametrize(("num_positives", "num_negatives"), [(1, 5), (2, 3), (3, 9)])
def test_a_list_with_too_few_passages_is_padded(num_positives: int, num_negatives: int) -> None:
    config = ListwiseConfig(positives=num_positives, negatives=num_negatives)
    passages, labels = query_list(POSITIVES, np.ones(2, np.int64), NEGATIVES, config, generator(0, "listwise", 0, 1))

    assert len(passages) == len(labels) == num_positives + num_negatives
    assert (labels == 1).sum() == min(num_positives, 2)
    assert (labels == 0).sum() == min(num_negatives, 7)
    assert set(passages[labels == 1].tolist()) <= set(POSITIVES.tolist())
    assert set(passages[labels == 0].tolist()) <= set(NEGATIVES.tolist())


def test_a_positive_is_drawn_as_often_as_its_grade_says_and_its_label_is_its_grade() -> None:
    config, grades = ListwiseConfig(positives=1, negatives=2), np.array([1, 3])
    counts = {1: 0, 3: 0}
    for epoch in range(2000):
        passages, labels = query_list(POSITIVES, grades, NEGATIVES, config, generator(0, "listwise", epoch, 1))
        counts[int(labels[0])] += 1
        assert POSITIVES[grades.tolist().index(labels[0])] == passages[0]
    assert counts[3] / 2000 == pytest.approx(0.75, abs=0.03)


def test_equal_grades_give_the_draws_of_no_grades() -> None:
    rows = np.arange(9)
    drawn = draw_by_weight(rows, np.full(9, 2), 4, generator(0, "listwise", 0, 1))
    assert drawn.tolist() == draw(rows, 4, generator(0, "listwise", 0, 1)).tolist()
