import math

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core.config import DatasetConfig, PipelineConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.measure.metrics import METRICS, Measure, parse, per_query, reciprocal_rank

TREC_NAMES = {
    "nDCG@10": "ndcg_cut_10",
    "MAP": "map",
    "P@10": "P_10",
    "R@100": "recall_100",
    "R@1000": "recall_1000",
}


def qrels_table(judgments):
    rows = [(q, p, relevance, "test") for q, grades in judgments.items() for p, relevance in grades.items()]
    return pa.table(list(map(list, zip(*rows, strict=True))), schema=JUDGMENTS)


def run_table(rankings):
    rows = [
        (q, p, rank, score) for q, scores in rankings.items() for rank, (p, score) in enumerate(scores.items(), start=1)
    ]
    columns = list(map(list, zip(*rows, strict=True))) if rows else [[], [], [], []]
    return pa.table(columns, schema=CANDIDATES)


def descending(*passage_ids):
    return {passage_id: float(-place) for place, passage_id in enumerate(passage_ids)}


def random_judgments_and_run(seed, num_queries=40, depth=150):
    """Graded judgments and few distinct scores; some queries lack results, judgments or relevant passages."""
    rng = np.random.default_rng(seed)
    judgments, rankings = {}, {}
    for number in range(num_queries):
        query_id = f"q{number}"
        pool = [f"p{i}" for i in rng.choice(400, size=depth + 30, replace=False)]
        if number % 7 != 3:
            highest = 1 if number % 5 == 2 else 4  # 1: every grade is 0
            judged = rng.choice(pool, size=int(rng.integers(1, 25)), replace=False)
            judgments[query_id] = {str(p): int(rng.integers(0, highest)) for p in judged}
        if number % 6 != 1:
            scores = rng.integers(0, 12, size=int(rng.integers(1, depth))).astype(np.float32) / np.float32(3)
            rankings[query_id] = dict(zip(pool, scores.tolist(), strict=False))
    return judgments, rankings


def trec_eval(judgments, rankings):
    """Ask pytrec_eval itself; for MRR@10, on each query's ten best by (score, passage id), both descending."""
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="pytrec_eval has no wheel for this machine")
    whole = pytrec_eval.RelevanceEvaluator(judgments, set(TREC_NAMES.values())).evaluate(rankings)
    best = {
        q: dict(sorted(scores.items(), key=lambda item: (item[1], item[0]), reverse=True)[:10])
        for q, scores in rankings.items()
    }
    first = pytrec_eval.RelevanceEvaluator(judgments, {"recip_rank"}).evaluate(best)
    expected = {}
    for query_id in judgments:
        expected[query_id] = {name: whole.get(query_id, {}).get(trec, 0.0) for name, trec in TREC_NAMES.items()}
        expected[query_id]["MRR@10"] = first.get(query_id, {}).get("recip_rank", 0.0)
    return expected


def test_hand_worked_ranking():
    judgments = {"q": {"a": 2, "b": 1, "c": 0, "missed": 1}}
    result = per_query(qrels_table(judgments), run_table({"q": descending("c", "a", "x", "b")}))
    means = result.means()
    assert means["MRR@10"] == pytest.approx(1 / 2)
    assert means["MAP"] == pytest.approx((1 / 2 + 2 / 4) / 3)
    assert means["P@10"] == pytest.approx(2 / 10)
    assert means["R@100"] == pytest.approx(2 / 3)
    assert means["R@1000"] == pytest.approx(2 / 3)
    ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert means["nDCG@10"] == pytest.approx((2 / math.log2(3) + 1 / math.log2(5)) / ideal)


GRADED = {"q": {"a": 3, "b": 1, "c": 0, "missed": 2}}
RANKED = {"q": descending("b", "x", "a", "c")}


@pytest.mark.parametrize(
    ("name", "relevant_from", "expected"),
    [
        ("RR@10", 1, 1.0),
        ("RR@10", 2, 1 / 3),
        ("RR@2", 2, 0.0),
        ("RR@10", 4, 0.0),
        ("P@2", 1, 1 / 2),
        ("P@2", 2, 0.0),
        ("P@4", 2, 1 / 4),
        ("R@4", 1, 2 / 3),
        ("R@4", 2, 1 / 2),
        ("AP", 1, (1 / 1 + 2 / 3) / 3),
        ("AP", 2, (1 / 3) / 2),
        ("AP@2", 1, (1 / 1) / 3),
        ("nDCG@1", 1, 1 / 3),
        ("nDCG@2", 1, 1 / (3 + 2 / math.log2(3))),
        # Grades 1, 0, 3 against 3, 2, 1: the same from any grade on.
        *(("nDCG@5", grade, (1 + 3 / 2) / (3 + 2 / math.log2(3) + 1 / 2)) for grade in (1, 2, 4)),
    ],
)
def test_any_metric_is_measured_by_its_name_from_the_grade_that_counts_as_relevant(name, relevant_from, expected):
    qrels, run = qrels_table(GRADED), run_table(RANKED)
    found = per_query(qrels, run, {name: parse(name)}, relevant_from).values[name]
    assert found.tolist() == pytest.approx([expected])
    assert Measure(name, relevant_from).values(qrels, run).tolist() == found.tolist()


def test_the_measure_of_a_configuration_is_its_metric_and_its_relevant_grade():
    config = PipelineConfig(training=TrainingConfig(metric="rr@3"), dataset=DatasetConfig(relevant_from=2))
    assert Measure.of(config) == Measure("MRR@3", 2)
    assert Measure.of(PipelineConfig()) == Measure("MRR@10", 1)


def test_an_evaluation_reports_the_selecting_metric_first_and_all_others():
    qrels, run = qrels_table(GRADED), run_table(RANKED)
    assert list(Measure("nDCG@5", 2).reported(qrels, run).values) == ["nDCG@5", *METRICS]
    assert list(Measure("MAP").reported(qrels, run).values)[:2] == ["MAP", "MRR@10"]
    assert list(Measure().reported(qrels, run).values) == list(METRICS)
    assert Measure("nDCG@5", 2).reported(qrels, run).means()["MRR@10"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(("rank", "expected"), [(1, 1.0), (10, 0.1), (11, 0.0)])
def test_mrr_at_10_ignores_ranks_below_10(rank, expected):
    ranking = [f"x{i}" for i in range(20)]
    ranking[rank - 1] = "relevant"
    result = per_query(qrels_table({"q": {"relevant": 1}}), run_table({"q": descending(*ranking)}))
    assert result.values["MRR@10"].tolist() == [expected]


@pytest.mark.parametrize("k", range(1, 120))
def test_every_cutoff_of_reciprocal_rank_includes_its_own_rank(k):
    ranking = [f"x{i}" for i in range(k - 1)] + ["relevant"]
    found = per_query(
        qrels_table({"q": {"relevant": 1}}),
        run_table({"q": descending(*ranking)}),
        {"in": reciprocal_rank(k), "out": reciprocal_rank(max(k - 1, 1)), "uncut": reciprocal_rank()},
    )
    assert found.values["in"][0] == found.values["uncut"][0] == 1 / k
    assert found.values["out"][0] == (1.0 if k == 1 else 0.0)


def test_ties_are_broken_by_passage_id_last_first_and_never_by_rank():
    run = run_table({"q": {"a": 1.0, "b": 1.0, "c": 1.0}})
    assert per_query(qrels_table({"q": {"a": 1}}), run).values["MRR@10"][0] == pytest.approx(1 / 3)
    assert per_query(qrels_table({"q": {"c": 1}}), run).values["MRR@10"][0] == 1.0


def by_definition(judgments, rankings):
    """Walk down each ranking once for each metric, as textbooks do."""
    expected = {}
    for query_id, judged in judgments.items():
        ranking = sorted(rankings.get(query_id, {}).items(), key=lambda item: (item[1], item[0]), reverse=True)
        grades = [judged.get(passage_id, 0) for passage_id, _ in ranking]
        places = [place for place, grade in enumerate(grades, start=1) if grade > 0]
        num_relevant = sum(grade > 0 for grade in judged.values()) or 1
        gain, most = (
            sum(grade / math.log2(place + 1) for place, grade in enumerate(row[:10], start=1))
            for row in (grades, sorted(judged.values(), reverse=True))
        )
        expected[query_id] = {
            "MRR@10": 1 / places[0] if places and places[0] <= 10 else 0.0,
            "nDCG@10": gain / most if most else 0.0,
            "MAP": sum(number / place for number, place in enumerate(places, start=1)) / num_relevant,
            "P@10": sum(place <= 10 for place in places) / 10,
            "R@100": sum(place <= 100 for place in places) / num_relevant,
            "R@1000": sum(place <= 1000 for place in places) / num_relevant,
        }
    return expected


@pytest.mark.parametrize("reference", [by_definition, trec_eval])
@pytest.mark.parametrize("seed", range(8))
def test_every_metric_equals_its_definition_and_trec_eval(seed, reference):
    judgments, rankings = random_judgments_and_run(seed)
    expected = reference(judgments, rankings)
    run = run_table(rankings)
    shuffled = run.take(pa.array(np.random.default_rng(seed).permutation(run.num_rows)))
    chunked = pa.concat_tables([run.slice(start, 97) for start in range(0, run.num_rows, 97)])
    for table in (run, shuffled, chunked):
        result = per_query(qrels_table(judgments), table)
        assert result.query_ids == sorted(judgments)
        assert result.num_without_results == len(judgments.keys() - rankings.keys())
        assert set(result.values) == set(METRICS)
        for name, values in result.values.items():
            assert values.tolist() == pytest.approx([expected[q][name] for q in result.query_ids], abs=1e-9)


def test_a_query_without_results_scores_zero_and_is_counted():
    judgments = {"found": {"a": 1}, "lost": {"a": 1}}
    result = per_query(qrels_table(judgments), run_table({"found": {"a": 1.0}, "unjudged": {"a": 1.0}}))
    assert result.query_ids == ["found", "lost"]
    assert result.values["MAP"].tolist() == [1.0, 0.0]
    assert result.num_without_results == 1
    assert result.means()["MAP"] == 0.5


def test_an_empty_run_scores_zero_everywhere():
    result = per_query(qrels_table({"q": {"a": 1}}), run_table({}))
    assert result.num_without_results == 1
    assert result.means() == dict.fromkeys(METRICS, 0.0)


def test_negative_grades_count_as_not_relevant():
    run = run_table({"q": descending("spam", "a"), "only_spam": descending("spam")})
    graded = per_query(qrels_table({"q": {"a": 1, "spam": -2}, "only_spam": {"spam": -2}}), run)
    plain = per_query(qrels_table({"q": {"a": 1, "spam": 0}, "only_spam": {"spam": 0}}), run)
    assert graded.means() == plain.means()
    assert plain.values["MRR@10"].tolist() == [0.0, 0.5]


def test_runs_and_judgments_that_trec_eval_cannot_measure_are_refused():
    qrels, run = qrels_table({"q": {"a": 1}}), run_table({"q": {"a": 1.0}})
    with pytest.raises(DatasetError, match="no judgments"):
        per_query(qrels.slice(0, 0), run)
    with pytest.raises(DatasetError, match="same passage twice"):
        per_query(pa.concat_tables([qrels, qrels]), run)
    with pytest.raises(DatasetError, match="passage twice for the query 'q'"):
        per_query(qrels, pa.concat_tables([run, run]))
    with pytest.raises(DatasetError, match="not a number for the query 'q'"):
        per_query(qrels, run_table({"q": {"a": math.nan}}))
