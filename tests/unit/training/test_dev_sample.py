"""Which dev queries are measured during training."""

import numpy as np
import pytest

from rayrank.text.ragged import Ragged
from rayrank.training.data import Split

ROWS = np.arange(100, 150)
DEV = Split(ROWS, Ragged.of([[row] for row in ROWS]), Ragged.of([[row, row + 1] for row in ROWS]))


def test_queries_are_sampled_at_even_steps() -> None:
    assert DEV.sample(5).queries.tolist() == [100, 110, 120, 130, 140]


@pytest.mark.parametrize("most", [None, 50, 500])
def test_without_a_limit_all_queries_are_measured(most: int | None) -> None:
    assert DEV.sample(most).queries.tolist() == list(range(100, 150))


def test_a_query_keeps_its_own_positives_and_candidates() -> None:
    sampled = DEV.sample(5)
    for index, query in enumerate(sampled.queries.tolist()):
        assert sampled.positives[index].tolist() == [query]
        assert sampled.candidates[index].tolist() == [query, query + 1]
