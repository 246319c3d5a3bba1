"""Scores of several runs interpolated: normalised within each query, with the weights that are best on dev."""

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.data.rows import ranked
from rayrank.measure.metrics import MRR_10, Measure, per_query
from rayrank.scores.interpolation import WEIGHTS, Interpolation, Normalization, Weights, WeightSearch, interpolate

RNG = np.random.default_rng(0)


def run(scores: np.ndarray) -> pa.Table:
    """Rows of several queries, which all have as many passages."""
    depth = scores.shape[1]
    return pa.table(
        {
            "query_id": [f"q{row // depth}" for row in range(scores.size)],
            "passage_id": [f"p{row}" for row in range(scores.size)],
            "rank": [row % depth + 1 for row in range(scores.size)],
            "score": scores.ravel(),
        },
        schema=CANDIDATES,
    )


def one_query(**scores: float) -> pa.Table:
    """A first stage's rows of one query, best first."""
    best_first = sorted(scores, key=lambda name: -scores[name])
    ranks = list(range(1, len(scores) + 1))
    return pa.table([["q"] * len(scores), best_first, ranks, [scores[name] for name in best_first]], schema=CANDIDATES)


def scores_of(table: pa.Table) -> dict[str, float]:
    return dict(zip(table["passage_id"].to_pylist(), table["score"].to_pylist(), strict=True))


def order_of(table: pa.Table) -> list[str]:
    return ranked(table)["passage_id"].to_pylist()


def two(weight: float) -> Weights:
    return 1 - weight, weight


def naive(model: list[float], first: list[float], weight: float) -> list[float]:
    def unit(values: list[float]) -> list[float]:
        low, high = min(values), max(values)
        return [(value - low) / (high - low) if high > low else 1.0 for value in values]

    return [(1 - weight) * mine + weight * its for mine, its in zip(unit(model), unit(first), strict=True)]


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_each_query_is_interpolated_by_itself(weight: float) -> None:
    model, first = RNG.normal(size=(5, 7)), RNG.gamma(2.0, size=(5, 7))
    first[2] = 4.0

    found = Interpolation([run(model), run(first)]).run(two(weight))["score"].to_numpy().reshape(5, 7)

    for row in range(5):
        wanted = naive(model[row].tolist(), first[row].tolist(), weight)
        assert found[row] == pytest.approx(wanted, abs=1e-6)
        assert interpolate(model[row], first[row], weight) == pytest.approx(wanted)


def test_neither_scale_nor_offset_of_a_first_stage_matters() -> None:
    model, first = RNG.normal(size=9), RNG.normal(size=9)

    assert interpolate(model, 100 * first + 1000, 0.4) == pytest.approx(interpolate(model, first, 0.4))


def test_a_passage_that_a_run_does_not_have_gets_the_lowest_value_from_it() -> None:
    first, second = one_query(a=3.0, b=2.0, c=1.0), one_query(d=8.0, b=4.0)

    found = {how: scores_of(Interpolation([first, second], how).run((0.5, 0.5))) for how in ("min-max", "rank")}
    spread = scores_of(Interpolation([first, second], "z-score").run((0.5, 0.5)))

    # By hand: a, b, c become 1, 0.5, 0, and d, b become 1, 0.
    assert found["min-max"] == found["rank"] == {"a": 0.5, "b": 0.25, "c": 0.0, "d": 0.5}
    # By hand: the mean of 3, 2, 1 is 2 and the deviation sqrt(2/3); those of 8, 4 are 6 and 2.
    high = 1 / np.sqrt(2 / 3)
    assert spread == pytest.approx(
        {"a": (high - 1) / 2, "b": (0 - 1) / 2, "c": (-high - 1) / 2, "d": (-high + 1) / 2}, abs=1e-6
    )


def test_ranks_ignore_the_distance_of_scores() -> None:
    near, far = one_query(a=3.0, b=2.9, c=0.0), one_query(a=300.0, b=2.0, c=1.0)

    assert scores_of(Interpolation([near, far], "rank").run((0.5, 0.5))) == {"a": 1.0, "b": 0.5, "c": 0.0}


def test_the_only_passage_of_a_run_counts_more_than_those_it_did_not_find() -> None:
    for how in ("min-max", "rank"):
        found = scores_of(Interpolation([one_query(a=0.2), one_query(b=7.0, c=6.0)], how).run((0.6, 0.4)))
        assert found == pytest.approx({"a": 0.6, "b": 0.4, "c": 0.0})


@pytest.mark.parametrize("how", ["min-max", "z-score", "rank"])
@pytest.mark.parametrize("seed", range(8))
def test_weight_0_keeps_the_first_runs_order_and_weight_1_the_seconds(how: Normalization, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Few distinct scores, so that many are equal.
    runs = [
        one_query(**{name: float(rng.integers(-2, 3)) for name in rng.permutation(list("abcdefgh"))[:number]})
        for number in (seed + 1, rng.integers(1, 9))
    ]

    for weight, own in ((0.0, runs[0]), (1.0, runs[1])):
        for best_first in (False, True):
            found = Interpolation(runs, how).run(two(weight), best_first=best_first)
            assert order_of(found)[: len(own)] == order_of(own)
            assert set(order_of(found)) == {name for each in runs for name in order_of(each)}
        cut = Interpolation(runs, how).run(two(weight), depth=len(own), best_first=True)
        assert cut["passage_id"].to_pylist() == order_of(own)
        assert cut["rank"].to_pylist() == list(range(1, len(own) + 1))


def test_runs_of_the_same_candidates_keep_their_rows_and_the_first_stages_ranks() -> None:
    first = run(RNG.normal(size=(4, 6)))
    model = first.set_column(3, CANDIDATES.field("score"), pa.array(RNG.normal(size=24), pa.float32()))

    found = Interpolation([model, first]).run((0.7, 0.3))

    assert found.select(["query_id", "passage_id", "rank"]).equals(first.select(["query_id", "passage_id", "rank"]))


def judged(relevant: np.ndarray, depth: int) -> pa.Table:
    number = len(relevant)
    return pa.table(
        {
            "query_id": [f"q{row}" for row in range(number)],
            "passage_id": [f"p{row * depth + place}" for row, place in enumerate(relevant)],
            "relevance": [1] * number,
            "split": ["dev"] * number,
        },
        schema=JUDGMENTS,
    )


def test_a_weight_in_between_is_found_for_two_runs_with_independent_errors() -> None:
    num_queries, depth = 200, 10
    relevant = RNG.integers(depth, size=num_queries)
    truth = np.eye(depth)[relevant]
    model, first = (run(truth + RNG.normal(size=truth.shape)) for _ in range(2))
    qrels = judged(relevant, depth)

    search = Interpolation([model, first]).search(qrels, MRR_10)

    curve, (_, best) = search.curve(), search.best()
    assert tuple(curve) == WEIGHTS
    assert curve[0.3] == pytest.approx(
        per_query(qrels, Interpolation([model, first]).run((0.7, 0.3))).means()["MRR@10"]
    )
    assert curve[best] == max(curve.values())
    assert 0.3 <= best <= 0.7
    assert curve[best] > max(curve[0.0], curve[1.0]) + 0.05


def test_of_three_runs_the_useless_one_gets_the_least_and_all_together_beat_each_pair() -> None:
    num_queries, depth = 300, 10
    relevant = RNG.integers(depth, size=num_queries)
    truth = np.eye(depth)[relevant]
    noisy = [run(truth + RNG.normal(size=truth.shape)) for _ in range(2)]
    useless = run(RNG.normal(size=truth.shape))

    search = Interpolation([useless, *noisy]).search(judged(relevant, depth), MRR_10)

    best = search.best()
    assert sum(best) == pytest.approx(1.0)
    assert best[0] < min(best[1:])
    assert search.mean(best) > max(search.mean(search.alone(place)) for place in range(3)) + 0.05
    assert search.best(among=[0, 2])[1] == 0.0
    assert search.best(among=[1]) == (0.0, 1.0, 0.0)


def test_the_weight_is_chosen_by_the_metric_that_selects() -> None:
    # Both runs rank the grade 3 passage second and a grade 1 passage first. In between, it is the first; but from
    # grade 1 on, the first rank is relevant at any weight, so that MRR@10 sees no difference.
    model, first = np.array([[3.0, 2.0, 0.0, 1.0]]), np.array([[0.0, 2.0, 3.0, 1.0]])
    grades = {"p0": 1, "p1": 3, "p2": 1}
    qrels = pa.table([["q0"] * 3, list(grades), list(grades.values()), ["dev"] * 3], schema=JUDGMENTS)
    pairs = Interpolation([run(model), run(first)])

    by_rank, by_gain = pairs.search(qrels, MRR_10), pairs.search(qrels, Measure("nDCG@5"))

    assert set(by_rank.curve().values()) == {1.0}
    assert by_rank.best() == (1.0, 0.0)
    ideal = 3 + 1 / np.log2(3) + 1 / 2
    assert by_gain.curve()[0.0] == pytest.approx((1 + 3 / np.log2(3) + 1 / np.log2(5)) / ideal)
    assert by_gain.curve()[0.5] == pytest.approx(1.0)
    assert 0.0 < by_gain.best()[1] < 1.0
    # From grade 3 on, MRR@10 prefers the same weights.
    strict = pairs.search(qrels, Measure("MRR@10", 3))
    assert (strict.curve()[0.0], strict.curve()[0.5]) == (0.5, 1.0)


def searching(values: np.ndarray) -> WeightSearch:
    """A search where each of WEIGHTS of the second run has one value per query."""
    query_ids = [f"q{row}" for row in range(values.shape[1])]
    return WeightSearch(query_ids, 2, lambda weights: values[round(weights[1] * 20)])


def test_a_query_has_no_part_in_the_weight_it_is_measured_with() -> None:
    # Each half of the queries wants another weight.
    values = np.zeros((len(WEIGHTS), 6))
    values[4, 0::2] = values[9, 1::2] = 1.0

    found = searching(values).cross_fitted()

    assert found == {f"q{row}": two(WEIGHTS[9] if row % 2 == 0 else WEIGHTS[4]) for row in range(6)}
    values[:, 0] = 0.0
    values[20, 0] = 99.0
    assert searching(values).cross_fitted()["q0"] == two(WEIGHTS[9])
    assert searching(values[:, :1]).cross_fitted() == {"q0": (1.0, 0.0)}


def test_of_equally_good_weights_the_lowest_is_taken() -> None:
    assert searching(np.ones((len(WEIGHTS), 1))).best() == (1.0, 0.0)


def test_a_query_with_weights_of_its_own_is_interpolated_with_them() -> None:
    pairs = Interpolation([run(RNG.normal(size=(3, 8))), run(RNG.normal(size=(3, 8)))])

    mixed, whole, other = (pairs.run(*each) for each in ((two(0.2), {"q1": two(0.9)}), (two(0.2),), (two(0.9),)))

    for query, wanted in (("q0", whole), ("q1", other)):
        scores = [table.filter(pa.compute.equal(table["query_id"], query))["score"] for table in (mixed, wanted)]
        assert scores[0].equals(scores[1])


def test_no_passages_have_no_scores() -> None:
    assert len(interpolate(np.empty(0), np.empty(0), 0.5)) == 0
    assert len(Interpolation([CANDIDATES.empty_table()] * 2, "z-score").run((0.5, 0.5))) == 0
