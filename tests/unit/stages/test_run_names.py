"""Two runs of an evaluation are told apart, whatever their files are called."""

import io
import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Store
from rayrank.core.config import EvaluateConfig, PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.jobs import summary
from rayrank.runs.reading import run_names
from rayrank.stages import evaluate

RUN = "q 0 wrong 1 2.0 mine\nq 0 right 2 1.0 mine\n"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store in which BM25 has the right passage first."""
    found, config = Store(str(tmp_path / "store")), PipelineConfig()
    judgments = pa.table([["q"], ["right"], [1], ["test"]], schema=JUDGMENTS)
    candidates = pa.table([["q", "q"], ["right", "wrong"], [1, 2], [2.0, 1.0]], schema=CANDIDATES)
    splits = {"splits": {"test": {"num_queries": 1, "num_judgments": 1}}}
    for stage, name, table in (("corpus", "judgments", judgments), ("candidates", "test/part-00000", candidates)):
        artifact = found.artifact(stage, config)
        artifact.write_table(f"{name}.parquet", table)
        found.finish(artifact, config, time.monotonic(), splits if stage == "corpus" else {}, stage)
    return found


def test_a_run_file_called_like_the_baseline_does_not_overwrite_its_row(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bm25.trec"
    file.write_text(RUN)
    config = PipelineConfig(evaluate=EvaluateConfig(run=str(file), baseline="bm25", resamples=100))

    artifact = evaluate.run(config, store)

    assert (artifact.manifest["run"], artifact.manifest["baseline"]) == ("bm25.trec", "bm25")
    stream = io.StringIO()
    monkeypatch.setattr("sys.stdout", stream)
    summary.show(summary.summarise([("evaluate", artifact, False)], "log"))
    rows = [line.split() for line in stream.getvalue().splitlines() if "MRR@10" in line]
    assert [row[1] for row in rows] == ["bm25", "bm25.trec"]
    assert [row[5] for row in rows] == ["1.0000", "0.5000"]


@pytest.mark.parametrize(
    ("run", "baseline", "names"),
    [
        ("mine.trec", "bm25", ("mine", "bm25")),
        ("mine.trec", "", ("mine", "")),
        ("drbert", "bm25", ("drbert", "bm25")),
        ("runs/bm25.trec", "bm25", ("bm25.trec", "bm25")),
        ("runs/bm25.trec", "", ("bm25.trec", "")),
        ("runs/bm25", "bm25", ("runs/bm25", "bm25")),
        ("old/mine.trec", "new/mine.trec", ("old/mine.trec", "new/mine.trec")),
        ("mine.trec", "mine.run", ("mine.trec", "mine.run")),
        ("bm25", "runs/bm25.trec", ("bm25", "bm25.trec")),
        ("mine.trec", "mine.trec", ("mine", "mine")),
    ],
)
def test_names_of_two_runs(run: str, baseline: str, names: tuple[str, str]) -> None:
    assert run_names(run, baseline, PipelineConfig()) == names
