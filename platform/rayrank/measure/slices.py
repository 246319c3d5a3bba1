"""Two runs compared on groups of queries, such as queries of one type or of one length."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rayrank.measure.significance import Comparison, Values, holm

Test = Callable[[Values, Values], Comparison]
"""Compares the values of a run with those of its baseline, query by query."""

CLOSE = 1e-9
"""Values that differ by less are a tie."""


@dataclass(frozen=True)
class Slice:
    """A group of queries: both means, their difference, and on how many queries the run is better, equal or worse."""

    name: str
    num_queries: int
    mean: float
    baseline: float
    comparison: Comparison
    wins: int
    ties: int
    losses: int


def compared(name: str, values: Values, baseline: Values, test: Test) -> Slice:
    """Compare two runs on one group of queries."""
    differences = values - baseline
    wins, losses = int((differences > CLOSE).sum()), int((differences < -CLOSE).sum())
    ties = len(values) - wins - losses
    return Slice(
        name, len(values), float(values.mean()), float(baseline.mean()), test(values, baseline), wins, ties, losses
    )


def by_group(groups: Sequence[str], order: Sequence[str], values: Values, baseline: Values, test: Test) -> list[Slice]:
    """Compare two runs on every group that has queries, in the given order; p values are Holm-corrected."""
    names = np.array(groups)
    found = [
        compared(name, values[names == name], baseline[names == name], test) for name in order if name in set(groups)
    ]
    corrected = holm([each.comparison.p_value for each in found])
    return [
        replace(each, comparison=replace(each.comparison, p_value=p_value))
        for each, p_value in zip(found, corrected, strict=True)
    ]
