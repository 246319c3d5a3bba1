"""A kind of run in a user's own module, named MODULE:CLASS, is made, measured and compared like any other run."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from .conftest import command

KIND = '''
import pyarrow as pa

from rayrank.core.run_kinds import CANDIDATES, RunKind, RunSettings


class ByLength(RunKind):
    """Candidates by the length of their passages, the longest first."""

    class Settings(RunSettings):
        of: str = CANDIDATES

    def inputs(self, settings, config):
        return ("corpus",)

    def make(self, run):
        corpus = run.store.require("corpus", run.config)
        tables = [corpus.read_table(shard, ["passage_id", "text"]).to_pydict() for shard in corpus.manifest["shards"]]
        lengths = {name: len(text) for table in tables for name, text in zip(*table.values())}
        for split in run.splits:
            rows = run.read(run.settings.of, split)
            scores = pa.array([lengths[name] for name in rows["passage_id"].to_pylist()], pa.float32())
            run.write(split, rows.set_column(3, "score", scores))
        return {"num_candidates": len(lengths)}
'''
ROOT = Path(__file__).resolve().parents[2]
TOY = ["--set", "runs.longest={kind: toy_kind:ByLength, title: Longest}"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a user's own module, outside of this project."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "toy_kind.py").write_text(KIND)
    return folder


@pytest.fixture(scope="module")
def storage(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the trained pipeline, because other tests count what is in it."""
    return Path(shutil.copytree(trained, tmp_path_factory.mktemp("toy") / "storage"))


def run(job: str, package: Path, storage: Path, joining: dict[str, str], *more: str) -> dict[str, Any]:
    """Run a job in the user's folder, which Ray adds to the path of its workers, and return its summary."""
    environment = {**joining, "PYTHONPATH": os.pathsep.join([str(ROOT / "platform"), str(ROOT)])}
    file = package / "summary.json"
    done = subprocess.run(
        command(job, storage, *TOY, *more, "--json", str(file)),
        env=environment, cwd=package, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text())  # type: ignore[no-any-return]


def test_the_kind_takes_fewer_than_30_lines() -> None:
    assert len(KIND.strip().splitlines()) < 30


def test_evaluate_compares_the_run_with_a_baseline(package: Path, storage: Path, joining: dict[str, str]) -> None:
    facts = run("evaluate", package, storage, joining, "--run", "longest", "--baseline", "bm25", "--split", "dev")
    made, evaluated = facts["stages"]
    assert (made["stage"], evaluated["evaluation"]["run"]) == ("run:longest", "longest")
    assert evaluated["evaluation"]["baseline"] == "bm25"
    assert 0 < evaluated["evaluation"]["metrics"]["MRR@10"]["mean"] <= 1
    # The run is ordered by length indeed.
    rows = pq.read_table(next(Path(made["path"]).glob("dev/*.parquet"))).to_pylist()
    texts = {
        row["passage_id"]: row["text"]
        for file in storage.glob("corpus/*/passages/*.parquet")
        for row in pq.read_table(file, columns=["passage_id", "text"]).to_pylist()
    }
    assert all(row["score"] == len(texts[row["passage_id"]]) for row in rows)


def test_run_pipeline_until_the_run_stops_there(package: Path, storage: Path, joining: dict[str, str]) -> None:
    facts = run("run_pipeline", package, storage, joining, "--until", "longest")
    assert [stage["stage"] for stage in facts["stages"]] == ["corpus", "index", "run:bm25", "run:longest"]


def test_ablate_has_a_row_for_the_run(package: Path, storage: Path, joining: dict[str, str]) -> None:
    facts = run("ablate", package, storage, joining, "--only", "Longest")
    assert [row["name"] for row in facts["table"]["rows"]] == ["DR-BERT", "Longest"]
