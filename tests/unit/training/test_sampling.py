"""What a query learns from depends on (seed, epoch, query) and nothing else."""

import numpy as np
import pytest

from rayrank.training.sampling import draw, generator, listwise_list, pointwise_pairs

POSITIVES, NEGATIVES = np.array([3, 8]), np.array([10, 11, 12, 13, 14, 15, 16])


def test_the_same_seed_epoch_and_query_draw_the_same_and_another_of_each_draws_otherwise() -> None:
    first = generator(1, 2, 3).permutation(1000)

    assert (generator(1, 2, 3).permutation(1000) == first).all()
    for other in ((9, 2, 3), (1, 9, 3), (1, 2, 9)):
        assert (generator(*other).permutation(1000) != first).any()


def test_a_draw_repeats_nothing_and_takes_all_where_there_are_too_few() -> None:
    drawn = draw(NEGATIVES, 5, generator(0, 0, 0))

    assert len(set(drawn.tolist())) == 5
    assert set(drawn.tolist()) <= set(NEGATIVES.tolist())
    assert sorted(draw(NEGATIVES, 50, generator(0, 0, 0)).tolist()) == NEGATIVES.tolist()


def test_pointwise_pairs_hold_every_positive_and_the_configured_ratio_of_negatives() -> None:
    queries, passages, labels = pointwise_pairs(7, POSITIVES, NEGATIVES, 3, generator(0, 0, 7))

    assert set(queries.tolist()) == {7}
    assert passages[labels == 1].tolist() == POSITIVES.tolist()
    assert (labels == 0).sum() == 6
    assert not set(passages[labels == 0].tolist()) & set(POSITIVES.tolist())


@pytest.mark.parametrize(("num_positives", "num_negatives"), [(1, 5), (2, 3), (3, 9)])
def test_a_list_has_its_length_whatever_there_is_to_draw_from(num_positives: int, num_negatives: int) -> None:
    passages, labels = listwise_list(POSITIVES, NEGATIVES, num_positives, num_negatives, generator(0, 0, 1))

    assert len(passages) == len(labels) == num_positives + num_negatives
    assert (labels == 1).sum() == min(num_positives, 2)
    assert (labels == 0).sum() == min(num_negatives, 7)
    assert set(passages[labels == 1].tolist()) <= set(POSITIVES.tolist())
    assert set(passages[labels == 0].tolist()) <= set(NEGATIVES.tolist())
