"""Fusion of named features: the scores of runs and the fields of passages, weighted as a list loss on dev prefers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import model_validator
from scipy.optimize import minimize

from rayrank.core.section import Section
from rayrank.scores.interpolation import Normalization, cross_fitted, normalised
from rayrank.scores.lambdarank import trained_trees, tree_scores
from rayrank.scores.union import NO_RANK, Ints, Scores, Union, Values

Form = Literal["linear", "lambdarank"]
Point = tuple[float, float]

FUSION = "fusion.json"
"""The file of a fusion, in the artifact of its run and in the folder of an exported model."""
NUM_POINTS = 101
"""Points of the curve from a field's values to their quantiles: a percentile each."""
MIDDLE = 0.5
"""The normalised value of a field that a passage does not have: that of the corpus's median."""
RIDGE = 1e-4
"""Weight of the squared weights in the loss: it keeps weights finite where a feature separates dev perfectly."""

Learned = TypeVar("Learned")


class Feature(Section):
    """One named feature."""

    name: str
    kind: Literal["run", "field"]
    points: tuple[Point, ...] = ()
    """Of a field: its values and their quantiles in the corpus, between which values are interpolated linearly."""


class Fusion(Section):
    """What was learned: stored with the run and, as fusion.json, with an exported model.

    The scores of a run are normalised within a query as `normalize` says, the values of a field to their quantile in
    the corpus, or to 0.5 for a passage without one. `linear` adds the features under their weights. `lambdarank` is the
    text of a LightGBM model that reads them in the order given.
    """

    form: Form
    normalize: Normalization
    features: tuple[Feature, ...]
    weights: tuple[float, ...] = ()
    trees: str = ""
    model: str = ""
    """In the folder of an exported model: the feature that the model's own scores are."""
    first_stage: str = ""
    """In that folder: the feature that the scores of the training's first stage are; empty if there is none."""

    @model_validator(mode="after")
    def _complete(self) -> "Fusion":
        if self.form == "linear" and len(self.weights) != len(self.features):
            raise ValueError("a linear fusion needs one weight per feature")
        return self

    def scores(self, values: Values) -> Scores:
        """Return the fused score of every row; `values` has one column per feature."""
        if self.form == "linear":
            fused: Scores = (values @ np.array(self.weights)).astype(np.float32)
            return fused
        return tree_scores(self.trees, values)

    def figures(self) -> dict[str, Any]:
        """Return the form and the features with their weights, without trees and points."""
        names = [feature.name for feature in self.features]
        return {"form": self.form, "features": dict(zip(names, self.weights or [None] * len(names), strict=True))}

    def shares(self) -> str:
        """Return the features, with their weights if they have one."""
        if self.form == "linear":
            pairs = zip(self.features, self.weights, strict=True)
            return ", ".join(f"{feature.name} {weight:.2f}" for feature, weight in pairs)
        return ", ".join(feature.name for feature in self.features)


class Lists(NamedTuple):
    """Rows to learn from: those of a query lie together."""

    values: Values
    of_query: Ints
    """Each row's query number; queries have numbers from 0 on, without gaps."""
    gains: Values
    """The grade of each row that is relevant, 0 for any other."""

    def of(self, queries: NDArray[np.bool_]) -> "Lists":
        """Return the rows of some queries that have a relevant row, which are numbered anew."""
        useful = queries & (np.bincount(self.of_query, self.gains, len(queries)) > 0)
        rows = useful[self.of_query]
        numbers = np.cumsum(useful) - 1
        return Lists(self.values[rows], numbers[self.of_query[rows]], self.gains[rows])


def field_points(values: Values) -> tuple[Point, ...]:
    """Return the curve from a field's values in the corpus (NaN for none) to their quantiles."""
    known = values[~np.isnan(values)]
    levels = np.linspace(0, 1, NUM_POINTS)
    found, place = np.unique(np.quantile(known, levels, method="inverted_cdf"), return_inverse=True)
    # A value that many passages have spans several quantiles, and gets the middle of them.
    middles = np.bincount(place, levels) / np.bincount(place)
    return tuple(zip(found.tolist(), middles.tolist(), strict=True))


def feature_values(
    union: Union, runs: Sequence[int], features: Sequence[Feature], fields: Values, normalize: Normalization
) -> Values:
    """Return the normalised features of all rows: runs by their position in the union, then fields (rows, fields)."""
    columns = [normalised(union, run, normalize) for run in runs]
    named = [feature for feature in features if feature.kind == "field"]
    for feature, column in zip(named, fields.T, strict=True):
        values, levels = zip(*feature.points, strict=True)
        columns.append(np.where(np.isnan(column), MIDDLE, np.interp(np.nan_to_num(column), values, levels)))
    return np.stack(columns, axis=1)


def fused_scores(fusion: Fusion, given: Mapping[str, Values]) -> Scores:
    """Return the fused score of each passage of one query, from the values of features by name, NaN for no value."""
    count = len(next(iter(given.values())))
    missing = np.full(count, np.nan)
    runs, fields = (
        [given.get(feature.name, missing) for feature in fusion.features if feature.kind == kind]
        for kind in ("run", "field")
    )
    scores = np.array(runs).reshape(-1, count)
    # Of equal scores the first one of the request has the better rank.
    ranks = np.where(np.isnan(scores), NO_RANK, np.arange(count))
    pairs = pa.table({"passage_id": pa.array(range(count))})
    union = Union([""], np.zeros(count, np.int64), pairs, scores, ranks)
    columns = np.array(fields).reshape(-1, count).T
    return fusion.scores(feature_values(union, range(len(runs)), fusion.features, columns, fusion.normalize))


def learn(form: Form, normalize: Normalization, features: Sequence[Feature], lists: Lists) -> Fusion:
    """Learn to fuse features from lists."""
    settings: dict[str, Any] = {"form": form, "normalize": normalize, "features": tuple(features)}
    if form == "linear":
        return Fusion(**settings, weights=tuple(linear_weights(lists).tolist()))
    return Fusion(**settings, trees=trained_trees(*lists))


def learn_halves(
    query_ids: Sequence[str], learned: Callable[[NDArray[np.bool_]], Learned]
) -> tuple[Learned, Mapping[str, Learned]]:
    """Return what all queries teach, and for each query what the half of the queries that it is not in teaches."""

    def of(queries: slice) -> Learned:
        chosen = np.zeros(len(query_ids), np.bool_)
        chosen[queries] = True
        return learned(chosen)

    return of(slice(None)), cross_fitted(query_ids, of)


def linear_weights(lists: Lists) -> Values:
    """Return the weights with the lowest softmax loss: the gains' share of a list against the scores' softmax."""
    values, of_query, gains = lists
    num_queries, num_features = int(of_query.max(initial=-1)) + 1, values.shape[1]
    starts = np.searchsorted(of_query, np.arange(num_queries))
    wanted = gains / np.add.reduceat(gains, starts)[of_query] / num_queries
    target = wanted @ values

    def loss(weights: Values) -> tuple[float, Values]:
        scores = values @ weights
        scores -= np.maximum.reduceat(scores, starts)[of_query]
        powers = np.exp(scores)
        totals = np.add.reduceat(powers, starts)
        value = np.log(totals).mean() - wanted @ scores + RIDGE / 2 * weights @ weights
        probabilities = powers / totals[of_query] / num_queries
        return float(value), probabilities @ values - target + RIDGE * weights

    found: Values = minimize(loss, np.ones(num_features), jac=True, method="L-BFGS-B").x
    return found
