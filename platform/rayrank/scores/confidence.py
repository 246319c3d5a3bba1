"""How often a model is right at a probability: the reliability of calibrated scores, and thresholds by precision."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from rayrank.scores.calibration import Values, fit_and_apply
from rayrank.scores.precision import precision_table

BINS = 10
"""Bins of the reliability diagram, of equal width."""


def confidence(
    scores: NDArray[np.floating], relevant: NDArray[np.bool_], query_ids: NDArray[np.integer]
) -> dict[str, Any]:
    """Return the calibration's errors, the reliability of plain and calibrated scores, and the thresholds.

    Calibrated probabilities come from curves that were fitted to other queries.
    """
    fitted, calibrated = fit_and_apply(scores, relevant, query_ids)
    top, table = _top(scores, query_ids), precision_table(scores, relevant, query_ids, fitted)
    return {
        **fitted.figures(),
        "reliability": {
            "sigmoid of the score": reliability(expit(np.asarray(scores, np.float64)), relevant),
            "calibrated": reliability(calibrated, relevant),
        },
        "num_top": len(top),
        "precision_of_all": float(relevant[top].mean()),
        "thresholds": [{**level.model_dump(), "kept": level.num_queries / table.num_queries} for level in table.levels],
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


def _top(scores: NDArray[np.floating], query_ids: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the place of every query's pair with the highest score."""
    order = np.lexsort((-scores, query_ids))
    return np.asarray(order[np.append(True, np.diff(query_ids[order]) != 0)], np.int64)
