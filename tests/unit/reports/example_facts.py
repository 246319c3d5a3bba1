"""The facts of reports on storages that have everything, for tests of the pages."""

from dataclasses import asdict
from typing import Any

import numpy as np

from rayrank.measure.metrics import PerQuery
from rayrank.measure.significance import compare, mean_interval
from rayrank.reports.ablation import Procedure, Variant, ablate
from rayrank.reports.comparison import Case, ComparisonReport, Hit, QueryFacts, most_different, overall, tables
from rayrank.reports.learning_curve import LearningCurve
from rayrank.scores.confidence import confidence
from tests.unit.reports.test_cut_words_report import example
from tests.unit.reports.test_learning_curve import point as curve_point

HOSTILE = "</script><script>alert(1)</script> & <b>bold</b>"


def evaluation(title: str, values: Any, first: Any = None) -> dict[str, Any]:
    figures: dict[str, Any] = vars(mean_interval(values, 200, 1)).copy()
    if first is not None:
        figures["comparison"] = vars(compare(values, first, "randomisation", 200, 1))
    metrics = {"MRR@10": figures}
    about = {"name": title, "title": title, "split": "test", "num_queries": len(values), "num_without_results": 2}
    return {**about, "metric": "MRR@10", "metrics": metrics}


def case(number: int, value: float, baseline: float) -> Case:
    hits = [Hit(f"p{number}", HOSTILE, True), Hit("p", "another passage " * 60, False)]
    return Case(f"q{number}", HOSTILE, "person", value, baseline, hits, hits[::-1], hits[0], 1, 2)


def comparison(values: Any, first: Any, procedure: Procedure) -> dict[str, Any]:
    number = np.arange(len(values))
    known = QueryFacts([("person", "place")[each % 2] for each in number], number % 12 + 1, number % 4, number % 40)
    gains, losses = (
        [case(place, values[place], first[place]) for place in places] for places in most_different(values, first, 20)
    )
    found = ComparisonReport(
        "DR-BERT", "BM25", "bm25", {}, "MRR@10", "test", procedure, overall(values, first, procedure),
        tables(known, values, first, procedure), sorted((values - first).tolist(), reverse=True), gains, losses,
    ).to_json()  # fmt: skip
    kept = np.unique(np.linspace(0, len(values) - 1, 2000).astype(int))
    found["differences"] = [{"query": int(each) + 1, "difference": found["differences"][each]} for each in kept]
    return found


def ablation(values: Any, first: Any) -> dict[str, Any]:
    runs = {"DR-BERT": values, "- STRM": values, "BM25": first}
    queries = [str(each) for each in range(len(values))]
    rows = [Variant(name, {"test": [PerQuery(queries, {"MRR@10": found}, 0)]}, 12.0) for name, found in runs.items()]
    return ablate(rows, "DR-BERT", procedure=Procedure(resamples=200)).to_json()


def phase(name: str, num_steps: int) -> dict[str, Any]:
    log = [
        {"step": step, "loss": 1 / step, "lr": 1e-4, "examples_per_s": 50.0, "dev": 0.5 if step == num_steps else None}
        for step in range(10, num_steps + 1, 10)
    ]
    about = {"train_seconds": 12.5, "num_workers": 1, "gpus": 0, "device": "cpu", "lr": 1e-4}
    return {"name": name, "num_steps": num_steps, "best_step": num_steps, "batch_size": 8, "epochs": 1, "dev": 0.5,
            "first_stage_dev": 0.4, **about, "settings": {"positives": 1, "negatives": 5}, "log": log}  # fmt: skip


def capacity_curve(documents: int) -> dict[str, Any]:
    points = [
        {"rps": rate / documents, "p95": documents * 0.001 / (1 - rate / 1100), "replicas": 1, "num_requests": 100}
        for rate in (200, 400, 600, 800, 1000)
    ]
    return {
        "documents": documents,
        "points": points,
        "carried": [{"p95": 0.05, "rps": None}, {"p95": 0.2, "rps": 12.3}],
    }


def complete(num_queries: int = 60, resamples: int = 200) -> dict[str, Any]:
    """Return the facts of a storage that has everything."""
    rng = np.random.default_rng(0)
    first, values = (1 / rng.integers(1, 11, num_queries) for _ in range(2))
    scores, relevant = rng.normal(size=4000), rng.random(4000) < 0.3
    reach = {"out_of_reach": 0.2, "below_top": 0.1, "in_top": 0.3, "first": 0.4}
    runs = [{"title": name, "shares": reach, "recall": [{"rank": 1, "recall": 0.3}, {"rank": 50, "recall": 0.8}]}
            for name in ("BM25", "DR-BERT")]  # fmt: skip
    point = {"threshold": 0.6, "num_removed": 7, "share_removed": 0.1, "mean_negatives_left": 8.5, "precision": 0.5,
             "recall": 0.25}  # fmt: skip
    histogram = {"edges": [0.0, 0.5, 1.0], "negatives": [60, 10], "positives": [0, 30], "hidden": [3, 4]}
    suspicious = {"query": HOSTILE, "probability": "0.91", "rank": "3", "passage": HOSTILE}
    return {
        "dataset": HOSTILE, "encoder": "encoder", "created": "2026-01-01T00:00+00:00", "revision": "0" * 40,
        "corpus": {"num_passages": 1000, "num_queries": 90, "num_judgments": 120,
                   "splits": {"train": {"num_queries": 30}}},
        "metric": "MRR@10", "split": "test", "first_stage": "BM25",
        "evaluations": [evaluation("BM25", first), evaluation("DR-BERT", values, first)],
        "choice": {"name": "DR-BERT", "finding": "chosen on dev"},
        "reach": {"num_queries": num_queries, "perfect_ranker": 0.8, "runs": runs},
        "comparison": comparison(values, first, Procedure(resamples=resamples)),
        "phases": [phase("pointwise", 200), phase("listwise", 40)],
        "noise": {"threshold": 0.6, "num_negatives": 70, "at_threshold": point, "hidden": {"base_rate": 0.05},
                  "margin": 0.5, "at_margin": {"num_removed": 9}, "relabel": None, "at_relabel": None,
                  "grid": [point, {"threshold": 0.9, "share_removed": 0.02}], "histogram": histogram,
                  "suspicious": [suspicious]},
        "calibration": {"title": "DR-BERT", **confidence(scores, relevant, np.arange(4000) // 10)},
        "ablations": [ablation(values, first)],
        "distillations": [{"table": ablation(values, first), "parts": [
            {"of": "teacher", "name": "listwise", "num_artifacts": 1, "seconds": 1234.5},
        ]}],
        "learning_curve": LearningCurve(
            "test", [curve_point(25, 0.3, ["BM25", "BM25"]), curve_point(400, 0.6, ["BM25", "DR-BERT"]),
                     curve_point(1600, 0.7, ["DR-BERT", "DR-BERT"])]
        ).to_json(),
        "cut_words": example().to_json(),
        "sweeps": [{"key": "0", "metric": "MRR@10", "settings": ["listwise.lr", "strm.form"], "trials": [
            {"trial": each, "dev": 0.5 - each / 50, "settings": {"listwise.lr": 10.0**-each, "strm.form": "mask"}}
            for each in range(1, 6)
        ], "importance": {"listwise.lr": 0.9, "strm.form": 0.1}}],
        "cost": [
            {"node": "corpus", "artifact": "corpus/0", "seconds": 3.0}
            | dict.fromkeys(("device_seconds", "pairs_per_second", "device")),
            {"node": "run:drbert", "artifact": "rerank/0", "seconds": 5.0, "device_seconds": 4.0,
             "pairs_per_second": 1234.5, "device": "CPU"},
        ],
        "capacity": {
            "model": HOSTILE, "device": "cuda", "backend": "torch", "dtype": "bfloat16", "texts": "generated texts",
            "created": "2026-01-01T00:00+00:00", "words": 61.2, "curves": [capacity_curve(10), capacity_curve(25)],
        },
        "findings": ["10,490 candidates"],
    }  # fmt: skip


def complete_against(num_queries: int = 60) -> dict[str, Any]:
    """Return the facts of a comparison of two storages, which has everything."""
    rng = np.random.default_rng(1)
    values = [1 / rng.integers(1, 11, num_queries) for _ in range(4)]
    procedure = Procedure(resamples=200)

    def compared(title: str, own: Any, other: Any) -> dict[str, Any]:
        means = {name: vars(mean_interval(each, 200, 1)) for name, each in (("mean", own), ("other", other))}
        curve = [{"query": place, "difference": each}
                 for place, each in enumerate(sorted((own - other).tolist(), reverse=True), 1)]  # fmt: skip
        metrics = {"MRR@10": {**means, "paired": asdict(overall(own, other, procedure))}}
        return {"title": title, "other": "DR-BERT", "metrics": metrics, "differences": curve}

    corpus = {"num_passages": 1000, "num_queries": 90, "num_judgments": 120}
    side = {
        "dataset": HOSTILE,
        "encoder": "encoder",
        "split": "test",
        "created": "2026-01-01T00:00+00:00",
        "revision": "0" * 40,
        "corpus": corpus,
        "chosen": "DR-BERT",
        "seconds": 1234.5,
        "device_seconds": 1000.0,
    }
    costs = [
        {"node": node, "is_same": node == "corpus", "values": [first, 7.5], "devices": [None, 3.5]}
        for node, first in (("corpus", 7.5), ("pretrain", None), ("run:drbert", 123.4))
    ]
    return {
        "created": "2026-01-01T00:00+00:00", "metric": "MRR@10", "unpaired": None,
        "sides": [{"label": HOSTILE[:20], **side}, {"label": "results", **side}],
        "runs": [compared("fused", values[0], values[1]), compared("DR-BERT", values[2], values[3])],
        "settings": [{"key": "listwise.lr", "value": 1e-5, "other": 2e-5},
                     {"key": "runs.fused.of", "value": ["drbert", HOSTILE], "other": None}],
        "cost": costs,
    }  # fmt: skip
