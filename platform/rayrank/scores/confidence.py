"""How often a model is right at a probability: the reliability of calibrated scores, and where to cut to be right."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rayrank.scores.calibration import Values, fit_and_apply

TARGETS = (0.8, 0.9, 0.95)
BINS = 10
"""Bins of the reliability diagram, of equal width."""


def confidence(
    scores: NDArray[np.floating], relevant: NDArray[np.bool_], query_ids: NDArray[np.integer]
) -> dict[str, Any]:
    """Return the calibration's errors, the reliability of plain and calibrated scores, and the cuts.

    Calibrated probabilities come from curves that were fitted to other queries.
    """
    fitted, calibrated = fit_and_apply(scores, relevant, query_ids)
    top = _top(scores, query_ids)
    return {
        **fitted.figures(),
        "reliability": {
            "sigmoid of the score": reliability(expit(np.asarray(scores, np.float64)), relevant),
            "calibrated": reliability(calibrated, relevant),
        },
        "num_top": len(top),
        "precision_of_all": float(relevant[top].mean()),
        "cuts": [cut(calibrated[top], relevant[top], target) for target in TARGETS],
    }


def reliability(probabilities: Values, relevant: NDArray[np.bool_]) -> list[dict[str, float]]:
    """Return for every bin with pairs their number, their mean probability and their share of relevant pairs."""
    of_bin = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(of_bin, minlength=BINS)
    predicted, found = (np.bincount(of_bin, each, BINS) for each in (probabilities, relevant.astype(np.float64)))
    return [
        {
            "count": int(counts[each]),
            "predicted": predicted[each] / counts[each],
            "relevant": found[each] / counts[each],
        }
        for each in np.flatnonzero(counts)
    ]


def cut(probabilities: Values, right: NDArray[np.bool_], target: float) -> dict[str, float | None]:
    """Return the lowest cut at which the queries above it have a relevant first passage as often as wanted.

    `probabilities` are those of the first passages, one for each query. Without such a cut its figures are None.
    """
    order = np.argsort(-probabilities, kind="stable")
    precision = np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    # A cut keeps all queries of equal probability.
    is_last = np.append(np.diff(probabilities[order]) != 0, True)
    fitting = np.flatnonzero((precision >= target) & is_last)
    if not len(fitting):
        return {"target": target, "cut": None, "kept": 0.0, "precision": None}
    last = fitting[-1]
    return {
        "target": target, "cut": float(probabilities[order[last]]), "kept": float((last + 1) / len(order)),
        "precision": float(precision[last]),
    }  # fmt: skip


def _top(scores: NDArray[np.floating], query_ids: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the place of every query's pair with the highest score."""
    order = np.lexsort((-scores, query_ids))
    return np.asarray(order[np.append(True, np.diff(query_ids[order]) != 0)], np.int64)
