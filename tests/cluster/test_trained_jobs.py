"""Jobs after training: runs, tables, reports and exported folders."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayrank.core.artifacts import Store
from tests.unit.reports.test_report_page import check_figures

from .conftest import FORKS, command, configured


@pytest.fixture(scope="module")
def storage(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("jobs") / "storage"
    shutil.copytree(trained, copy)
    return copy


Run = Callable[..., dict[str, Any]]
"""Runs a job on a storage and returns its summary."""


@pytest.fixture(scope="module")
def run(joining: dict[str, str]) -> Run:
    def run(job: str, storage: Path, *more: str) -> dict[str, Any]:
        summary = storage.parent / f"{job}.json"
        order = command(job, storage, "--json", str(summary), *more)
        answer = FORKS.run(order, joining)
        assert answer.returncode == 0, answer.stderr
        return json.loads(summary.read_text())  # type: ignore[no-any-return]

    return run


def files(storage: Path, run: str, split: str) -> list[Path]:
    """The files of one split of a run."""
    found = Store(str(storage)).require(run, configured())
    return [Path(found.path(name)) for name in found.names(split)]


@pytest.fixture(scope="module")
def measured(storage: Path, run: Run) -> Path:
    """The storage with dev ranked by the listwise model."""
    run("evaluate", storage, "--run", "drbert", "--split", "dev")
    return storage


def test_the_pipeline_compares_every_run_with_bm25_and_reuses_trained_models(storage: Path, run: Run) -> None:
    summary = run("run_pipeline", storage)

    stages = summary["stages"]
    assert isinstance(stages, list)
    made = {fact["stage"] for fact in stages if not fact["reused"]}
    assert made == {"run:pointwise", "run:drbert", "run:fused", "noise_report", "evaluate"}
    evaluations = [fact["evaluation"] for fact in stages if "evaluation" in fact]
    assert [facts["run"] for facts in evaluations] == ["bm25", "pointwise", "drbert", "fused"]
    for facts in evaluations[1:]:
        figures = facts["metrics"]["MRR@10"]
        assert figures["baseline"]["mean"] == evaluations[0]["metrics"]["MRR@10"]["mean"]
        assert 0 <= figures["comparison"]["p_value"] <= 1
    page = Path(str(summary["report"]))
    reported = json.loads((page.parent / "report.json").read_text())
    assert [facts["metrics"] for facts in reported["evaluations"]] == [facts["metrics"] for facts in evaluations]
    assert check_figures(page.read_text(), reported) > 100
    assert [phase["name"] for phase in reported["phases"]] == ["pretrain", "pointwise", "listwise"]


def test_a_reranked_run_holds_exactly_the_candidates(measured: Path) -> None:
    def pairs(name: str) -> set[tuple[str, str]]:
        rows = pa.concat_tables([pq.read_table(file) for file in files(measured, name, "dev")])
        return set(zip(rows["query_id"].to_pylist(), rows["passage_id"].to_pylist(), strict=True))

    assert pairs("drbert") == pairs("candidates")


def test_the_noise_report_uses_hidden_answers_and_higher_thresholds_remove_fewer_candidates(
    storage: Path, run: Run
) -> None:
    run("filter_noise", storage)

    (file,) = storage.glob("noise_report/*/report.json")
    report = json.loads(file.read_text())
    assert report["hidden"]["num_hidden"] > 0
    removed = [point["num_removed"] for point in report["grid"]]
    assert removed == sorted(removed, reverse=True)
    assert (file.parent / "report.png").read_bytes().startswith(b"\x89PNG")
    header, *rows = (file.parent / "suspicious.csv").read_text().splitlines()
    assert "query" in header
    assert rows


def test_first_stages_are_made_and_compared_before_and_after_the_ranker(measured: Path, run: Run) -> None:
    both = ["--set", "runs.steep={kind: search, k1: 2.0}", "--set", "runs.both={kind: rrf, of: [bm25, steep]}"]
    summary = run("first_stages", measured, *both, *(part for name in ("bm25", "both") for part in ("--run", name)))

    assert [part["split"] for part in summary["report"]["splits"]] == ["dev", "test"]
    for part in summary["report"]["splits"]:
        assert [stage["title"] for stage in part["first_stages"]] == ["BM25", "both"]
        for row in part["ranked"]:
            assert sum(row["shares"].values()) == pytest.approx(1)
            assert row["mrr"] <= row["perfect"] == pytest.approx(1 - row["shares"]["out_of_reach"])
        # Other tests of this file may have made more rankers.
        ranked = [(row["candidates"], row["ranked_by"]) for row in part["ranked"]]
        assert {("BM25", "BM25"), ("BM25", "DR-BERT"), ("both", "both")} <= set(ranked)
    assert all(cost["queries_per_second"] > 0 < cost["num_bytes"] for cost in summary["report"]["costs"].values())
    names = {path.name for path in Path(summary["folder"]).iterdir()}
    assert names >= {"report.json", "report.md", "recall-dev.png", "ranking-test.png"}


@pytest.mark.slow
def test_the_ablation_reuses_artifacts_and_reports_the_difference_of_each_row(storage: Path, run: Run) -> None:
    before = {path.parent.name for path in storage.glob("listwise/*/manifest.json")}

    # With such a learning rate the loss is soon no number.
    rows = ("--only", "BM25", "--only", "- listwise", "--row", "broken: listwise.lr=1e30 listwise.warmup=0")
    summary = run("ablate", storage, *rows, "--parallel", "2", "--compare", "- listwise", "BM25")

    assert {path.parent.name for path in storage.glob("listwise/*/manifest.json")} == before
    table = summary["table"]
    assert isinstance(table, dict)
    assert [row["name"] for row in table["rows"]] == ["BM25", "DR-BERT", "- listwise"]
    assert list(table["failed"]) == ["broken"]
    assert "lower the learning rate" in table["failed"]["broken"]
    full, without = (row["figures"]["dev"]["MRR@10"]["all"] for row in table["rows"][1:])
    difference = without["interval"]["mean"] - full["interval"]["mean"]
    assert without["comparison"]["difference"] == pytest.approx(difference)
    folder = Path(str(summary["folder"]))
    assert {path.name for path in folder.iterdir()} == {
        "about.json",
        "table.json",
        "table.md",
        "table.tex",
        "table.png",
    }
    (compared,) = summary["comparisons"]
    report = json.loads(Path(compared, "report.json").read_text())
    assert (report["run"], report["baseline"], report["split"]) == ("- listwise", "BM25", "test")
    means = [table["rows"][row]["figures"]["test"]["MRR@10"]["all"]["interval"]["mean"] for row in (2, 0)]
    assert report["overall"]["comparison"]["difference"] == pytest.approx(means[0] - means[1])


def test_the_learning_curve_ends_with_the_trained_models_and_the_run_that_dev_chose(storage: Path, run: Run) -> None:
    before = {path.parent.name for path in storage.glob("listwise/*/manifest.json")}

    summary = run("learning_curve", storage, "--queries", "1000000")

    assert {path.parent.name for path in storage.glob("listwise/*/manifest.json")} == before
    (point,) = summary["curve"]["points"]
    corpus = Store(str(storage)).require("corpus", configured()).manifest
    assert point["num_queries"] == corpus["splits"]["train"]["num_queries"] + corpus["num_held_out"]
    names = [row["name"] for row in point["table"]["rows"]]
    assert names == ["BM25", "pointwise", "DR-BERT", "fused", "chosen on dev"]
    figures = {row["name"]: row["figures"]["test"]["MRR@10"]["all"]["interval"] for row in point["table"]["rows"]}
    assert figures["chosen on dev"] == figures[point["chosen"][0]]
    assert {path.name for path in Path(summary["folder"]).iterdir()} == {
        "about.json",
        "curve.json",
        "curve.md",
        "curve.png",
    }


def test_an_exported_model_scores_as_the_stored_run(measured: Path, run: Run, tmp_path: Path) -> None:
    from rayrank.bundle.export import load
    from rayrank.bundle.text_scorer import score

    # So small a model may not be better than BM25, and is exported all the same.
    run("export", measured, "--output", str(tmp_path / "model"), "--model", "drbert", "--force")

    ranked = pq.read_table(files(measured, "drbert", "dev")[0]).slice(0, 8).to_pylist()
    (corpus,) = measured.glob("corpus/*")
    queries = {row["query_id"]: row for row in pq.read_table(corpus / "queries.parquet").to_pylist()}
    passages = {
        row["passage_id"]: row["text"]
        for file in (corpus / "passages").glob("*.parquet")
        for row in pq.read_table(file).to_pylist()
    }
    asked = [queries[row["query_id"]] for row in ranked]
    found = score(
        load(str(tmp_path / "model")),
        [query["text"] for query in asked],
        [passages[row["passage_id"]] for row in ranked],
        [query["query_type"] for query in asked],
    )
    assert np.allclose(found, [row["score"] for row in ranked], atol=1e-4)


@pytest.mark.slow
def test_an_int8_model_is_exported_if_it_ranks_dev_as_well_and_refused_if_not(
    storage: Path, joining: dict[str, str], tmp_path: Path
) -> None:
    from rayrank.bundle.export import load
    from rayrank.bundle.text_scorer import score

    folder, summary = tmp_path / "model", tmp_path / "export.json"
    more = ("--force", "--output", str(folder), "--json", str(summary), "--set", "scorer.backend=onnx-int8")

    order = command("export", storage, *more)
    answer = FORKS.run(order, joining)

    # Five queries and a model that has learnt little: which of the two it is may differ between processors.
    if answer.returncode:
        assert answer.returncode == 2, answer.stderr
        assert "MRR@10 on 5 dev queries falls from" in answer.stderr
        assert not folder.exists()
        return
    measured = json.loads(summary.read_text())["quantized"]
    assert measured["torch"] - measured["quantized"] <= 0.005
    assert "model-int8.onnx is for CPUs: MRR@10" in (folder / "README.md").read_text()
    queries, passages, types = ["what is it"] * 3, ["a bridge", "a tall tower of stone", "it is"], ["location"] * 3
    full, small = (score(load(str(folder), backend), queries, passages, types) for backend in ("torch", "onnx-int8"))
    assert np.allclose(small, full, atol=0.5)


def test_compare_agrees_with_evaluate_and_shows_both_top_lists(measured: Path, run: Run) -> None:
    names = ("--run", "drbert", "--baseline", "bm25", "--split", "dev")
    (evaluated,) = [fact for fact in run("evaluate", measured, *names)["stages"] if fact["stage"] == "evaluate"]
    figures = json.loads(Path(evaluated["path"], "manifest.json").read_text())["metrics"]["MRR@10"]

    summary = run("compare", measured, *names, "--cases", "3")

    report, folder = summary["report"], Path(str(summary["folder"]))
    overall = report["overall"]
    assert overall["mean"] == pytest.approx(figures["mean"])
    assert overall["comparison"] == pytest.approx(figures["comparison"])
    assert overall["wins"] + overall["ties"] + overall["losses"] == overall["num_queries"] == len(report["differences"])
    assert len(report["tables"]) == 4
    for rows in report["tables"].values():
        assert sum(row["num_queries"] for row in rows) == overall["num_queries"]
    assert {path.name for path in folder.iterdir()} == {"report.json", "report.md", "differences.png", "groups.png"}
    cases = [*report["gains"], *report["losses"]]
    assert cases
    for case in cases:
        assert case["top"][0]["text"]
        better = case["rank"] if case["value"] > case["baseline"] else case["baseline_rank"]
        assert max(case["value"], case["baseline"]) == pytest.approx(1 / better)


@pytest.mark.slow
def test_cut_words_are_compared_with_and_without_strm_and_their_attention_is_drawn(storage: Path, run: Run) -> None:
    options = ("--run", "pointwise", "--top", "9", "--cases", "4", "--pictures", "2")
    summary = run("cut_words", storage, *options)

    report, folder = summary["report"], Path(str(summary["folder"]))
    every, cut = report["queries"][:2]
    assert 0 < cut["num_queries"] <= every["num_queries"]
    sharing = report["groups"][0]
    assert sharing["num_pairs"] == sharing["num_lower"] + sharing["num_equal"] + sharing["num_higher"] > 0
    # So small a training decides which of the two models ranks such passages higher, not STRM.
    assert len(report["attention"]) == min(2, len(report["lowered"]) + len(report["raised"])) > 0
    pictures = {f"attention-{number}.png" for number in range(1, len(report["attention"]) + 1)}
    assert {path.name for path in folder.iterdir()} == {"about.json", "report.json", "report.md", *pictures}
    assert all(case["plain_rank"] < case["rank"] for case in report["lowered"])
    assert all(case["plain_rank"] > case["rank"] for case in report["raised"])
    rows = pa.concat_tables(
        [pq.read_table(file) for file in files(storage, "run:pointwise", report["split"])]
    ).to_pylist()
    for case in [*report["lowered"], *report["raised"]]:
        scores = [(row["score"], row["passage_id"]) for row in rows if row["query_id"] == case["query_id"]]
        assert sorted(scores, reverse=True)[case["rank"] - 1][1] == case["passage_id"]
    for shown in report["attention"]:
        # With STRM, a piece that does not end its word gets no attention from the query.
        pieces, weights = shown["passage_pieces"], np.array(shown["weights"])
        hidden = [place for place, piece in enumerate(pieces[1:]) if piece.startswith("##")]
        assert hidden
        assert weights[:, hidden].max() == 0 < np.array(shown["plain_weights"])[:, hidden].min()
