"""Two runs on groups of queries, on hand-worked cases."""

import numpy as np
import pytest

from rayrank.measure.significance import Comparison, Values
from rayrank.measure.slices import by_group, compared


def difference(values: Values, baseline: Values) -> Comparison:
    mean = float((values - baseline).mean())
    return Comparison(mean, mean, mean, p_value=0.02 if mean > 0 else 0.5)


VALUES, BASELINE = np.array([1.0, 0.5, 0.25, 0.0]), np.array([0.5, 0.5, 0.5, 0.0])


def test_queries_are_counted_as_better_equal_or_worse() -> None:
    found = compared("all", VALUES, BASELINE, difference)
    assert (found.wins, found.ties, found.losses) == (1, 2, 1)
    assert (found.num_queries, found.mean, found.baseline) == (4, 0.4375, 0.375)
    assert found.comparison.difference == pytest.approx(0.0625)


def test_a_rounding_error_is_a_tie() -> None:
    found = compared("all", np.array([0.1 + 0.2]), np.array([0.3]), difference)
    assert (found.wins, found.ties, found.losses) == (0, 1, 0)


def test_groups_keep_their_order_and_leave_out_empty_ones() -> None:
    found = by_group(["long", "short", "short", "long"], ["short", "middle", "long"], VALUES, BASELINE, difference)
    assert [(each.name, each.num_queries) for each in found] == [("short", 2), ("long", 2)]
    assert [each.comparison.difference for each in found] == pytest.approx([-0.125, 0.25])
    # Holm's correction of 0.5 and 0.02 for two groups.
    assert [each.comparison.p_value for each in found] == pytest.approx([0.5, 0.04])
