"""A killed candidates job, started again, keeps the partitions that it had written."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.processes import kill_whole

from .conftest import FORKS

SETTINGS = ["--set", "dataset.demo.subjects=400", "--set", "runs.bm25.partition_queries=25"]


def command(job: str, storage: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", f"jobs.{job}", "--storage", str(storage), *SETTINGS, *more]


def partitions(storage: Path) -> dict[str, Path]:
    return {f"{path.parent.name}/{path.name}": path for path in storage.glob("search/*/*/*.parquet")}


@pytest.fixture(scope="module")
def unbroken(joining: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    storage = tmp_path_factory.mktemp("unbroken")
    answer = FORKS.run(command("run_pipeline", storage, "--until", "candidates"), joining)
    assert answer.returncode == 0, answer.stderr
    return storage


@pytest.mark.slow
def test_a_resumed_job_repeats_no_partition_and_finds_the_same_candidates(
    unbroken: Path, joining: dict[str, str], tmp_path: Path
) -> None:
    storage, summary = tmp_path / "storage", tmp_path / "summary.json"
    shutil.copytree(unbroken, storage)
    shutil.rmtree(storage / "search")
    total = len(partitions(unbroken))
    process = subprocess.Popen(command("build_candidates", storage), text=True)
    deadline = time.monotonic() + 120
    while len(partitions(storage)) < total // 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    kill_whole(process)
    survivors = {name: path.stat().st_mtime_ns for name, path in partitions(storage).items()}
    assert 0 < len(survivors) < total
    assert not list(storage.glob("search/*/manifest.json"))

    again = FORKS.run(command("build_candidates", storage, "--json", str(summary)), joining)

    assert again.returncode == 0, again.stderr
    reused = re.search(r"(\d+) of (\d+) partitions exist already", again.stderr)
    assert reused
    assert [int(count) for count in reused.groups()] == [len(survivors), total]
    assert "partitions exist already" in Path(json.loads(summary.read_text())["log"]).read_text()
    finished = partitions(storage)
    assert all(finished[name].stat().st_mtime_ns == written for name, written in survivors.items())
    assert finished.keys() == partitions(unbroken).keys()
    for name, path in partitions(unbroken).items():
        assert pq.read_table(finished[name]).equals(pq.read_table(path))
