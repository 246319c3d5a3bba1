"""The learning curve as a table, a sentence and a picture."""

import numpy as np
import pytest

from rayrank.measure.metrics import PerQuery
from rayrank.reports.ablation import Procedure, Variant, ablate
from rayrank.reports.learning_curve import CHOSEN, LearningCurve, Point, caption, markdown, table
from rayrank.reports.learning_curve_plot import learning_curve_png

QUERIES = [f"q{number}" for number in range(50)]


def runs(mean: float, seeds: int = 2) -> dict[str, list[PerQuery]]:
    values = [np.random.default_rng(seed).normal(mean, 0.05, len(QUERIES)) for seed in range(seeds)]
    return {"test": [PerQuery(QUERIES, {"MRR@10": each}, 0) for each in values]}


def point(num_queries: int, ranker: float, chosen: list[str]) -> Point:
    found = {"BM25": runs(0.5), "DR-BERT": runs(ranker)}
    picked = {"test": [found[name]["test"][seed] for seed, name in enumerate(chosen)]}
    variants = [*(Variant(name, each) for name, each in found.items()), Variant(CHOSEN, picked)]
    return Point(num_queries, chosen, ablate(variants, "BM25", procedure=Procedure(resamples=500)))


@pytest.fixture
def curve() -> LearningCurve:
    return LearningCurve("test", [point(25, 0.3, ["BM25", "BM25"]), point(1600, 0.7, ["DR-BERT", "DR-BERT"])])


def test_every_number_of_queries_has_a_line_for_each_run_and_for_the_chosen_one(curve: LearningCurve) -> None:
    lines = [line[:2] for line in table(curve).lines]
    assert lines == [
        ["25", "BM25"], ["25", "DR-BERT"], ["25", "chosen on dev: BM25"],
        ["1,600", "BM25"], ["1,600", "DR-BERT"], ["1,600", "chosen on dev: DR-BERT"],
    ]  # fmt: skip


def test_runs_are_compared_with_the_first_stage_of_the_same_number_of_queries(curve: LearningCurve) -> None:
    differences = [line[4] for line in table(curve).lines]
    assert differences[0] == ""
    assert differences[1].startswith("-0.2")
    assert differences[2].startswith("+0.0000")
    assert differences[4].startswith("+0.2")


def test_the_caption_names_the_sizes_at_which_the_chosen_run_is_significantly_below_the_first_stage(
    curve: LearningCurve,
) -> None:
    assert "nowhere significantly below" in caption(curve)
    worse = LearningCurve("test", [point(25, 0.3, ["DR-BERT", "DR-BERT"]), *curve.points])
    assert "significantly below its first stage with 25 queries." in caption(worse)


def test_the_curve_is_the_same_after_json(curve: LearningCurve) -> None:
    assert LearningCurve.from_json(curve.to_json()) == curve
    assert "| 1,600 | DR-BERT |" in markdown(curve)


def test_the_picture_is_a_png(curve: LearningCurve) -> None:
    assert learning_curve_png(curve).startswith(b"\x89PNG")
