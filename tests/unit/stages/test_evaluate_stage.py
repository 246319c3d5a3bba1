"""An evaluation reports the metric that selects models, with grades from `relevant_from` on as relevant."""

import math
import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.measure.metrics import METRICS
from rayrank.stages import evaluate

# Each query's candidates, best first, and the grades of its judgments.
RANKED = {"q0": ["b", "a", "c"], "q1": ["c", "b", "a"]}
GRADES = {"q0": {"a": 3, "b": 1}, "q1": {"a": 2, "c": 0}}


def storage(root: Path, config: PipelineConfig) -> Store:
    store = Store(str(root))
    rows = [(q, p, rank, -float(rank)) for q, found in RANKED.items() for rank, p in enumerate(found, 1)]
    judged = [(q, p, grade, "test") for q, grades in GRADES.items() for p, grade in grades.items()]
    for stage, name, schema, content in (
        ("corpus", "judgments.parquet", JUDGMENTS, judged),
        ("candidates", "test/part-0.parquet", CANDIDATES, rows),
    ):
        artifact = store.artifact(stage, config)
        artifact.write_table(name, pa.table([list(column) for column in zip(*content, strict=True)], schema=schema))
        store.finish(artifact, config, time.monotonic(), {"splits": {"test": {"num_judgments": len(judged)}}}, stage)
    return store


def test_the_selecting_metric_is_added_and_binary_metrics_count_relevant_grades(tmp_path: Path) -> None:
    config = build("demo", assignments=["training.metric=nDCG@2", "dataset.relevant_from=2"])

    made = evaluate.run(config, storage(tmp_path, config))

    figures = made.manifest["metrics"]
    assert list(figures) == ["nDCG@2", *METRICS]
    first = (1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3))
    assert figures["nDCG@2"]["mean"] == pytest.approx((first + 0) / 2)
    # The passages of grade 2 and more are at ranks 2 and 3.
    assert figures["MRR@10"]["mean"] == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert made.read_table("per_query.parquet").column_names == ["query_id", "nDCG@2", *METRICS]


def test_the_usual_metrics_come_in_the_usual_order(tmp_path: Path) -> None:
    config = build("demo")

    assert list(evaluate.run(config, storage(tmp_path, config)).manifest["metrics"]) == list(METRICS)
