"""What the report says about a storage whose artifacts are written by hand, figure by figure."""

import json
import time
from argparse import Namespace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import MissingArtifact
from rayrank.core.overrides import build
from rayrank.core.records import CANDIDATES, JUDGMENTS, PASSAGES, QUERIES
from rayrank.jobs.report import run
from rayrank.stages import evaluate
from rayrank.stages.report.collect import collect
from rayrank.text.pieces import PieceEncoder
from tests.unit.reports.test_report_page import check_figures

TEXTS = {"a": "the bridge of stone", "b": "a tower", "c": "a harp", "z": "no candidate"}
RUNS = {"bm25": "bac", "drbert": "abc"}
# The answer to the last query of a split is no candidate.
RELEVANT = "aaaz"
OPTIONS = Namespace(
    preset="demo", dataset="demo", storage="S", config=None, set=["evaluate.resamples=100"], against=None, capacity=None
)  # fmt: skip
STEPS = [{"step": 10, "loss": 0.7, "lr": 1e-4, "examples_per_s": 50.0, "dev": None, "saved": False},
         {"step": 20, "loss": 0.5, "lr": 0.0, "examples_per_s": 60.0, "dev": 0.75, "saved": True}]  # fmt: skip


def table(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.table([list(column) for column in zip(*rows, strict=True)], schema=schema)


def finish(store: Store, config: PipelineConfig, node: str, facts: dict[str, Any]) -> Artifact:
    return store.finish(store.artifact(node, config), config, time.monotonic() - 2, facts, node)


def corpus(store: Store, config: PipelineConfig) -> None:
    made, encoder = store.artifact("corpus", config), files("rayrank.data.sources.demo") / "encoder"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        with made.create(f"tokenizer/{name}") as stream:
            stream.write((encoder / name).read_bytes())
    pieces = PieceEncoder((encoder / "tokenizer.json").read_text(), 64)
    texts = [
        (f"{split}{number}", split, "person", f"who built bridge {number}")
        for split in ("dev", "test")
        for number in range(4)
    ]
    rows = [(*row, ids.as_py()) for row, ids in zip(texts, pieces([row[3] for row in texts]), strict=True)]
    made.write_table("queries.parquet", table(rows, QUERIES))
    passages = list(zip(TEXTS, TEXTS.values(), pieces(list(TEXTS.values())).to_pylist(), strict=True))
    made.write_table("passages/part-0.parquet", table(passages, PASSAGES))
    judged = [(query, RELEVANT[int(query[-1])], 1, split) for query, split, _, _ in texts]
    made.write_table("judgments.parquet", table(judged, JUDGMENTS))
    counts = {split: {"num_queries": 4, "num_judgments": 4} for split in ("dev", "test")}
    facts = {
        "num_passages": 4,
        "num_queries": 8,
        "num_judgments": 8,
        "splits": counts,
        "shards": ["passages/part-0.parquet"],
    }
    finish(store, config, "corpus", facts)


@pytest.fixture(scope="module")
def config() -> PipelineConfig:
    return build("demo", assignments=OPTIONS.set)


@pytest.fixture
def store(tmp_path: Path, config: PipelineConfig) -> Store:
    """Return a storage with a corpus, the runs bm25 and drbert, and a training."""
    store = Store(str(tmp_path / "storage"))
    corpus(store, config)
    for name, ranked in RUNS.items():
        node = flow.run_node(name, config)
        for split in ("dev", "test"):
            rows = [
                (f"{split}{number}", passage, rank, -float(rank))
                for number in range(4)
                for rank, passage in enumerate(ranked, 1)
            ]
            store.artifact(node, config).write_table(f"{split}/part-0.parquet", table(rows, CANDIDATES))
        finish(
            store, config, node, {"num_candidates": 24, "score_seconds": 1.5, "gpus": 0.5} if name == "drbert" else {}
        )
    with store.artifact("listwise", config).create("log.jsonl") as stream:
        stream.write("".join(json.dumps(line) + "\n" for line in STEPS).encode())
    finish(store, config, "listwise", {"num_steps": 20, "train_seconds": 3.0, "num_workers": 2, "gpus": 1, "dev": 0.75})
    return store


@pytest.fixture
def evaluated(store: Store, config: PipelineConfig) -> Store:
    for name in RUNS:
        evaluate.run(flow.evaluating(name, config), store)
    return store


def test_the_figures_are_those_of_the_artifacts(evaluated: Store, config: PipelineConfig) -> None:
    facts = collect(config, evaluated, 20)

    for name, found in zip(RUNS, facts["evaluations"], strict=True):
        manifest = evaluated.require("evaluate", flow.evaluating(name, config)).manifest
        assert found["metrics"] == manifest["metrics"]
    bm25, drbert = facts["evaluations"]
    assert bm25["metrics"]["MRR@10"]["mean"] == pytest.approx(3 / 4 / 2)
    assert drbert["metrics"]["MRR@10"]["mean"] == pytest.approx(3 / 4)
    (phase,) = facts["phases"]
    assert [line["loss"] for line in phase["log"]] == [0.7, 0.5]
    assert facts["noise"] is None
    assert facts["ablations"] == facts["sweeps"] == []


def test_the_answers_out_of_reach_bound_what_a_ranker_can_reach(evaluated: Store, config: PipelineConfig) -> None:
    reach = collect(config, evaluated, 20)["reach"]

    first, ranker = (run["shares"] for run in reach["runs"])
    assert first == {"out_of_reach": 0.25, "below_top": 0.0, "in_top": 0.75, "first": 0.0}
    assert ranker == {"out_of_reach": 0.25, "below_top": 0.0, "in_top": 0.0, "first": 0.75}
    assert reach["perfect_ranker"] == pytest.approx(0.75)


def test_the_best_run_is_compared_query_by_query_although_dev_chose_the_first_stage(
    evaluated: Store, config: PipelineConfig
) -> None:
    facts = collect(config, evaluated, 2)
    found = facts["comparison"]

    assert facts["choice"]["name"] == "bm25"
    assert (found["run"], found["baseline"]) == ("DR-BERT", "BM25")
    assert [found["overall"][name] for name in ("wins", "ties", "losses")] == [3, 1, 0]
    assert [each["difference"] for each in found["differences"]] == [0.5, 0.5, 0.5, 0.0]
    assert [(case["rank"], case["baseline_rank"]) for case in found["gains"]] == [(1, 2), (1, 2)]
    assert found["gains"][0]["top"][0] == {"passage_id": "a", "text": TEXTS["a"], "is_relevant": True}


def test_device_seconds_count_workers_and_shares_of_a_gpu(evaluated: Store, config: PipelineConfig) -> None:
    costs = {each["node"]: each for each in collect(config, evaluated, 20)["cost"]}

    assert costs["corpus"]["device_seconds"] is None
    assert costs["listwise"]["device_seconds"] == pytest.approx(3.0 * 2)
    assert costs["run:drbert"]["device_seconds"] == pytest.approx(1.5 * 0.5)
    assert costs["run:drbert"]["pairs_per_second"] == pytest.approx(24 / (1.5 * 0.5))


def test_scores_of_dev_tell_how_often_the_first_passage_is_right(evaluated: Store, config: PipelineConfig) -> None:
    found = collect(config, evaluated, 20)["calibration"]

    # The fourth dev query has no relevant candidate, and no judged query is left out for that.
    assert found["num_top"] == 4
    assert found["precision_of_all"] == pytest.approx(3 / 4)


def test_the_job_writes_the_page_its_facts_and_its_charts(evaluated: Store, config: PipelineConfig) -> None:
    summary = run(OPTIONS, config, evaluated)

    page = Path(summary["report"])
    written = json.loads((page.parent / "report.json").read_text())
    assert check_figures(page.read_text(), written) > 100
    assert {"runs.svg", "recall.svg", "differences.svg", "listwise-loss.svg", "cost.svg"} <= {
        each.name for each in page.parent.iterdir()
    }
    assert "rayrank filter-noise --preset demo --dataset demo --storage S" in page.read_text()


def test_without_evaluations_the_page_says_how_to_make_them(store: Store, config: PipelineConfig) -> None:
    page = Path(run(OPTIONS, config, store)["report"]).read_text()

    assert "No run has been evaluated yet" in page
    assert "listwise-loss.svg" in page


def test_the_first_stages_figures_come_from_a_rankers_evaluation_if_it_was_not_evaluated_itself(
    store: Store, config: PipelineConfig
) -> None:
    evaluate.run(flow.evaluating("drbert", config), store)

    first, ranker = collect(config, store, 20)["evaluations"]

    assert (first["title"], ranker["title"]) == ("BM25", "DR-BERT")
    assert first["metrics"]["MRR@10"]["mean"] == pytest.approx(3 / 8)


def test_a_storage_without_a_corpus_is_refused(tmp_path: Path, config: PipelineConfig) -> None:
    with pytest.raises(MissingArtifact, match=r"first run `rayrank build-corpus`"):
        collect(config, Store(str(tmp_path)), 20)


def test_a_first_stage_that_found_nothing_leaves_only_what_can_be_measured(
    store: Store, config: PipelineConfig
) -> None:
    for split in ("dev", "test"):
        for name in RUNS:
            found = store.artifact(flow.run_node(name, config), config)
            found.write_table(f"{split}/part-0.parquet", CANDIDATES.empty_table())
    for name in RUNS:
        evaluate.run(flow.evaluating(name, config), store)

    facts = collect(config, store, 20)

    assert [each["num_without_results"] for each in facts["evaluations"]] == [4, 4]
    assert facts["reach"] is facts["comparison"] is facts["calibration"] is None
    assert "report.html" in run(OPTIONS, config, store)["report"]
