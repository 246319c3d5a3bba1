"""A model's scores interpolated with the first stage's: normalised within each query, weighted as is best on dev."""

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.measure.metrics import MRR_10, Measure, per_query
from rayrank.scores.interpolation import WEIGHTS, Interpolation, WeightSearch, interpolate

RNG = np.random.default_rng(0)


def run(scores: np.ndarray) -> pa.Table:
    """Rows of several queries that do not lie together: a row of each in turn."""
    number = len(scores)
    return pa.table(
        {
            "query_id": [f"q{row % number}" for row in range(scores.size)],
            "passage_id": [f"p{row}" for row in range(scores.size)],
            "rank": [row // number + 1 for row in range(scores.size)],
            "score": scores.T.ravel(),
        },
        schema=CANDIDATES,
    )


def naive(model: list[float], first: list[float], weight: float) -> list[float]:
    def unit(values: list[float]) -> list[float]:
        low, high = min(values), max(values)
        return [(value - low) / (high - low) if high > low else 0.0 for value in values]

    return [(1 - weight) * mine + weight * its for mine, its in zip(unit(model), unit(first), strict=True)]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_each_query_is_interpolated_by_itself(weight: float) -> None:
    model, first = RNG.normal(size=(5, 7)), RNG.gamma(2.0, size=(5, 7))
    first[2] = 4.0

    found = Interpolation(run(model), run(first)).run(weight)["score"].to_numpy().reshape(7, 5).T

    for row in range(5):
        wanted = naive(model[row].tolist(), first[row].tolist(), weight)
        assert found[row] == pytest.approx(wanted, abs=1e-6)
        assert interpolate(model[row], first[row], weight) == pytest.approx(wanted)


def test_neither_scale_nor_offset_of_a_first_stage_matters() -> None:
    model, first = RNG.normal(size=9), RNG.normal(size=9)

    assert interpolate(model, 100 * first + 1000, 0.4) == pytest.approx(interpolate(model, first, 0.4))


def test_weight_0_keeps_the_models_order_and_weight_1_the_first_stages() -> None:
    model, first = run(RNG.normal(size=(3, 8))), run(RNG.normal(size=(3, 8)))

    for weight, source in ((0.0, model), (1.0, first)):
        orders = [
            table.filter(pa.compute.equal(table["query_id"], "q1")).sort_by([("score", "descending")])["passage_id"]
            for table in (Interpolation(model, first).run(weight), source)
        ]
        assert orders[0].equals(orders[1])


def test_a_weight_in_between_is_found_for_two_runs_with_independent_errors() -> None:
    num_queries, depth = 200, 10
    relevant = RNG.integers(depth, size=num_queries)
    truth = np.eye(depth)[relevant]
    model, first = (run(truth + RNG.normal(size=truth.shape)) for _ in range(2))
    qrels = pa.table(
        {
            "query_id": [f"q{row}" for row in range(num_queries)],
            "passage_id": [f"p{place * num_queries + row}" for row, place in enumerate(relevant)],
            "relevance": [1] * num_queries,
            "split": ["dev"] * num_queries,
        },
        schema=JUDGMENTS,
    )

    search = Interpolation(model, first).search(qrels, MRR_10)

    curve, best = search.curve(), search.best()
    assert tuple(curve) == WEIGHTS
    assert curve[0.3] == pytest.approx(per_query(qrels, Interpolation(model, first).run(0.3)).means()["MRR@10"])
    assert curve[best] == max(curve.values())
    assert 0.3 <= best <= 0.7
    assert curve[best] > max(curve[0.0], curve[1.0]) + 0.05


def test_the_weight_is_chosen_by_the_metric_that_selects() -> None:
    # Both runs rank the grade 3 passage second and a grade 1 passage first. In between, it is the first; but from
    # grade 1 on, the first rank is relevant at any weight, so that MRR@10 sees no difference.
    model, first = np.array([[3.0, 2.0, 0.0, 1.0]]), np.array([[0.0, 2.0, 3.0, 1.0]])
    grades = {"p0": 1, "p1": 3, "p2": 1}
    qrels = pa.table([["q0"] * 3, list(grades), list(grades.values()), ["dev"] * 3], schema=JUDGMENTS)
    pairs = Interpolation(run(model), run(first))

    by_rank, by_gain = pairs.search(qrels, MRR_10), pairs.search(qrels, Measure("nDCG@5"))

    assert set(by_rank.curve().values()) == {1.0}
    assert by_rank.best() == 0.0
    ideal = 3 + 1 / np.log2(3) + 1 / 2
    assert by_gain.curve()[0.0] == pytest.approx((1 + 3 / np.log2(3) + 1 / np.log2(5)) / ideal)
    assert by_gain.curve()[0.5] == pytest.approx(1.0)
    assert 0.0 < by_gain.best() < 1.0
    # From grade 3 on, MRR@10 prefers the same weights.
    strict = pairs.search(qrels, Measure("MRR@10", 3))
    assert (strict.curve()[0.0], strict.curve()[0.5]) == (0.5, 1.0)


def test_a_query_has_no_part_in_the_weight_it_is_measured_with() -> None:
    # Each half of the queries wants another weight.
    values = np.zeros((len(WEIGHTS), 6))
    values[4, 0::2] = values[9, 1::2] = 1.0
    search = WeightSearch([f"q{row}" for row in range(6)], values)

    assert search.cross_fitted() == {f"q{row}": WEIGHTS[9] if row % 2 == 0 else WEIGHTS[4] for row in range(6)}
    values[:, 0] = 0.0
    values[20, 0] = 99.0
    assert search.cross_fitted()["q0"] == WEIGHTS[9]
    assert WeightSearch(["q0"], values[:, :1]).cross_fitted() == {"q0": 0.0}


def test_of_equally_good_weights_the_lowest_is_taken() -> None:
    assert WeightSearch(["q0"], np.ones((len(WEIGHTS), 1))).best() == 0.0


def test_a_query_with_a_weight_of_its_own_is_interpolated_with_it() -> None:
    model, first = run(RNG.normal(size=(3, 8))), run(RNG.normal(size=(3, 8)))

    mixed, whole, other = (Interpolation(model, first).run(*each) for each in ((0.2, {"q1": 0.9}), (0.2,), (0.9,)))

    for query, wanted in (("q0", whole), ("q1", other)):
        scores = [table.filter(pa.compute.equal(table["query_id"], query))["score"] for table in (mixed, wanted)]
        assert scores[0].equals(scores[1])


def test_no_passages_have_no_scores() -> None:
    assert len(interpolate(np.empty(0), np.empty(0), 0.5)) == 0
