"""Which queries are trained on and which are measured."""

import numpy as np
import pytest

from rayrank.text.ragged import Ragged
from rayrank.training.data import Split, hold_out


def split(queries: range) -> Split:
    rows = np.array(queries, np.int64)
    return Split(rows, Ragged.of([[row] for row in rows]), Ragged.of([[row, row + 1] for row in rows]))


def test_no_query_is_in_train_and_dev() -> None:
    for dev in (range(100, 150), range(0)):
        held = hold_out({"train": split(range(100)), "dev": split(dev)}, num_dev=20)
        assert not set(held["train"].queries.tolist()) & set(held["dev"].queries.tolist())


def test_dev_is_sampled_at_even_steps_and_train_is_kept_whole() -> None:
    held = hold_out({"train": split(range(100)), "dev": split(range(100, 150))}, num_dev=5)

    assert held["dev"].queries.tolist() == [100, 110, 120, 130, 140]
    assert len(held["train"].queries) == 100


@pytest.mark.parametrize("num_dev", [None, 50, 500])
def test_without_a_limit_all_dev_queries_are_measured(num_dev: int | None) -> None:
    held = hold_out({"train": split(range(100)), "dev": split(range(100, 150))}, num_dev)

    assert held["dev"].queries.tolist() == list(range(100, 150))


def test_without_a_dev_split_a_tenth_of_train_is_held_out() -> None:
    held = hold_out({"train": split(range(100)), "dev": split(range(0))}, num_dev=500)

    assert held["dev"].queries.tolist() == list(range(0, 100, 10))
    assert len(held["train"].queries) == 90


def test_a_query_keeps_its_own_positives_and_candidates() -> None:
    held = hold_out({"train": split(range(100)), "dev": split(range(100, 150))}, num_dev=5)["dev"]

    for place, query in enumerate(held.queries.tolist()):
        assert held.positives[place].tolist() == [query]
        assert held.candidates[place].tolist() == [query, query + 1]
