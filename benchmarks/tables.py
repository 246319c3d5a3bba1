"""Figures of a benchmark as text."""

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], digits: int) -> str:
    """Return a median and its range as text."""
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"
