"""What a job prints at its end."""

from typing import Any

import pytest

from rayrank.jobs.summary import show, show_pipeline


def figures(mean: float, over: float | None) -> dict[str, Any]:
    found: dict[str, Any] = {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}
    if over is not None:
        found["baseline"] = {"mean": mean - over, "low": 0.0, "high": 1.0}
        margin = 0.01 if over else 0.0
        found["comparison"] = {"difference": over, "low": over - margin, "high": over + margin, "p_value": 0.01}
    return found


def stage(name: str, **facts: Any) -> dict[str, Any]:
    return {
        "stage": name, "path": f"storage/{name}/0", "reused": False, "seconds": 1.0, "counts": {}, "left_out": {}
    } | facts  # fmt: skip


def evaluation(run: str, over: float | None) -> dict[str, Any]:
    metrics = {"nDCG@10": figures(0.5 + (over or 0), over), "R@100": figures(0.9, None if over is None else 0.0)}
    about = {"run": run, "baseline": "" if over is None else "bm25", "split": "test", "num_queries": 72}
    return stage("evaluate", evaluation={**about, "num_without_results": 1, "metric": "nDCG@10", "metrics": metrics})


@pytest.fixture
def summary() -> dict[str, Any]:
    counts = {"num_passages": 1440, "num_queries": 360, "num_judgments": 700, "num_held_out": 60}
    stages = [stage("corpus", counts=counts, findings=["dev: held out of train"])]
    stages += [evaluation("bm25", None), evaluation("drbert", 0.1), evaluation("fused", 0.2)]
    return {"stages": stages, "log": "storage/logs/1.log"}


def test_a_pipeline_ends_with_what_it_built_its_runs_by_the_selection_metric_and_the_conclusion(
    summary: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    show_pipeline(summary, ["chosen on dev: fused", "report: here"])

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "built from 1,440 passages, 360 queries, 700 judgments in 4 s".split()
    assert lines[1][:5] == ["test,", "72", "queries", "nDCG@10", "[95%"]
    assert [line[:2] for line in lines[2:5]] == [["bm25", "0.5000"], ["drbert", "0.6000"], ["fused", "0.7000"]]
    assert [" ".join(line) for line in lines[5:]] == ["chosen on dev: fused", "report: here"]


def test_a_metric_in_which_no_run_differs_has_one_row(
    summary: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    show(summary)

    rows = [line for line in capsys.readouterr().out.splitlines() if "R@100" in line]
    assert len(rows) == 1
    assert "all runs" in rows[0]
