"""Calibration: a monotone curve from scores to probabilities of relevance, fitted to judged pairs and measured."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import model_validator
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, logit

from rayrank.core.config import Section
from rayrank.core.errors import DatasetError

Values = NDArray[np.float64]
Kind = Literal["isotonic", "platt"]

FOLDS = 5
MAX_POINTS = 200
"""The largest number of points of an isotonic curve: more detail than a dev split supports, and a file that a person
can still read."""

BINS = 15
"""Number of equal-width bins for the expected calibration error, the usual one."""


class Curve(Section):
    """A monotone curve from scores to probabilities."""

    kind: Kind
    points: tuple[tuple[float, float], ...] = ()
    """Isotonic: (score, probability) pairs, interpolated linearly and constant beyond the first and the last."""
    slope: float = 1.0
    intercept: float = 0.0
    """Platt: the probability is sigmoid(slope * score + intercept)."""

    @model_validator(mode="after")
    def _is_monotone(self) -> "Curve":
        if self.kind == "isotonic" and not self.points:
            raise ValueError("an isotonic calibration needs points")
        if self.slope < 0 or (np.diff(np.array(self.points).reshape(-1, 2), axis=0) < 0).any():
            raise ValueError("a calibration must not fall: check slope and points")
        return self

    def apply(self, logits: ArrayLike) -> NDArray[np.float32]:
        """Return the probability of each score."""
        values = np.asarray(logits, np.float64)
        if self.kind == "platt":
            return np.asarray(expit(self.slope * values + self.intercept), np.float32)
        scores, heights = zip(*self.points, strict=True)
        return np.asarray(np.interp(values, scores, heights), np.float32)


class Calibration(Curve):
    """The curve fitted to all dev pairs, with its errors on queries that were held out of the fit."""

    num_pairs: int
    num_queries: int
    ece_before: float
    """Expected calibration error of the plain sigmoid of the scores."""
    ece_after: float
    log_loss_before: float
    log_loss_after: float

    def figures(self) -> dict[str, Any]:
        """Return the errors and counts, without the curve."""
        return self.model_dump(exclude={"points", "slope", "intercept"})

    def finding(self) -> str:
        """Return the errors and counts as a sentence."""
        return (
            f"{self.kind} calibration on {self.num_pairs:,} candidates of {self.num_queries:,} dev queries: expected "
            f"calibration error {self.ece_before:.4f} -> {self.ece_after:.4f}, log loss {self.log_loss_before:.4f} -> "
            f"{self.log_loss_after:.4f}, measured on queries that the curve was not fitted to"
        )


def fit(
    logits: ArrayLike, labels: ArrayLike, query_ids: ArrayLike, kind: Kind | Literal["auto"] = "auto"
) -> Calibration:  # fmt: skip
    """Fit a curve from scores to the probability of relevance; auto takes the kind with the lower held-out log loss."""
    return fit_and_apply(logits, labels, query_ids, kind)[0]


def fit_and_apply(
    logits: ArrayLike, labels: ArrayLike, query_ids: ArrayLike, kind: Kind | Literal["auto"] = "auto"
) -> tuple[Calibration, Values]:  # fmt: skip
    """Return what `fit` returns, and every pair's probability by a curve that was fitted to other queries."""
    scores, relevant = np.asarray(logits, np.float32).astype(np.float64), np.asarray(labels, np.bool_)
    names, of_query = np.unique(np.asarray(query_ids), return_inverse=True)
    _check(scores, relevant, len(names))
    kinds: Sequence[Kind] = ("isotonic", "platt") if kind == "auto" else (kind,)
    fold = of_query % min(FOLDS, len(names))
    held_out = {name: _held_out(name, scores, relevant, fold) for name in kinds}
    best = min(kinds, key=lambda name: log_loss(held_out[name], relevant))
    before = expit(scores)
    found = Calibration(
        **_curve(best, scores, relevant).model_dump(),
        num_pairs=len(scores),
        num_queries=len(names),
        ece_before=expected_calibration_error(before, relevant),
        ece_after=expected_calibration_error(held_out[best], relevant),
        log_loss_before=log_loss(before, relevant),
        log_loss_after=log_loss(held_out[best], relevant),
    )
    return found, held_out[best]


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = BINS) -> float:
    """Return the mean over pairs of the gap between a bin's mean probability and its share of relevant pairs."""
    predicted, relevant = np.asarray(probabilities, np.float64), np.asarray(labels, np.float64)
    of_bin = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(of_bin, predicted - relevant)).sum() / len(predicted))


def log_loss(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """Return the mean cross-entropy in nats, with probabilities clipped away from 0 and 1."""
    least = np.finfo(np.float64).eps
    predicted = np.clip(np.asarray(probabilities, np.float64), least, 1 - least)
    return float(-np.where(np.asarray(labels, np.bool_), np.log(predicted), np.log1p(-predicted)).mean())


def _check(scores: Values, relevant: NDArray[np.bool_], num_queries: int) -> None:
    if not np.isfinite(scores).all():
        raise DatasetError("No calibration can be fitted: some scores are not finite numbers; train the model again.")
    if num_queries < 2:
        raise DatasetError(
            f"No calibration can be fitted: it needs the candidates of two queries, and there are {num_queries}."
        )
    if relevant.all() or not relevant.any():
        same = "relevant" if relevant.all() else "not relevant"
        raise DatasetError(
            f"No calibration can be fitted: all {len(scores):,} candidates are {same}, and it needs both kinds; "
            f"raise candidates.depth."
        )


def _held_out(kind: Kind, scores: Values, relevant: NDArray[np.bool_], fold: NDArray[np.int64]) -> Values:
    """Return the probability of every pair from the curve fitted to the queries of the other folds."""
    found = np.empty(len(scores))
    for number in range(fold.max() + 1):
        out = fold == number
        found[out] = _curve(kind, scores[~out], relevant[~out]).apply(scores[out])
    return found


def _curve(kind: Kind, scores: Values, relevant: NDArray[np.bool_]) -> Curve:
    # Platt's (1999) smoothed targets: one more pair of each class keeps probabilities off 0 and 1.
    num_relevant = int(relevant.sum())
    targets = np.where(relevant, (num_relevant + 1) / (num_relevant + 2), 1 / (len(scores) - num_relevant + 2))
    return _isotonic(scores, targets) if kind == "isotonic" else _platt(scores, targets)


def _isotonic(scores: Values, targets: Values) -> Curve:
    """Return an isotonic fit with one point per step, at the step's mean score.

    Interpolating between points gives fewer equal probabilities than the steps would.
    """
    distinct, index, counts = np.unique(scores, return_inverse=True, return_counts=True)
    found = isotonic_regression(np.bincount(index, targets) / counts, weights=counts)
    starts = found.blocks[:-1]
    centres = np.add.reduceat(distinct * counts, starts) / np.add.reduceat(counts, starts)
    heights = found.x[starts]
    if len(starts) > MAX_POINTS:
        kept = np.linspace(0, len(starts) - 1, MAX_POINTS).round().astype(np.int64)
        centres, heights = centres[kept], heights[kept]
    return Curve(kind="isotonic", points=tuple(zip(centres.tolist(), heights.tolist(), strict=True)))


def _platt(scores: Values, targets: Values) -> Curve:
    # Scores are standardised, so that the optimiser converges in a few steps on any model's scale.
    centre, width = scores.mean(), scores.std()
    inputs = (scores - centre) / width if width > 0 else np.zeros(len(scores))

    def loss(line: Values) -> tuple[float, Values]:
        values = line[0] * inputs + line[1]
        error = expit(values) - targets
        entropy = np.logaddexp(0, values) - targets * values
        return float(entropy.mean()), np.array([(error * inputs).mean(), error.mean()])

    start = np.array([1.0, logit(targets.mean())])
    # The curve must not fall, so a model whose scores are inverted gets a slope of 0.
    slope, intercept = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=[(0, None), (None, None)]).x
    slope = slope / width if width > 0 else 0.0
    return Curve(kind="platt", slope=float(slope), intercept=float(intercept - slope * centre))
