"""Sweeps on a real Ray: trials share earlier artifacts, report why they failed, and are resumed after a kill."""

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest

from rayrank.core import flow
from rayrank.core.overrides import build
from tests.processes import below

from .conftest import FORKS, UNHURRIED, settings

BEFORE = ("corpus", "index", "search", "query_types", "pretrain", "pointwise", "rerank")


def command(storage: Path, *more: str) -> list[str]:
    chosen = [part for setting in settings() for part in ("--set", setting)]
    return [sys.executable, "-m", "tune.sweep", "--storage", str(storage), *chosen, *more]


def manifests(storage: Path, stage: str) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in storage.glob(f"{stage}/*/manifest.json")}


def trials(storage: Path) -> list[dict[str, Any]]:
    (file,) = storage.glob("sweeps/*/trials.parquet")
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def wait_for_a_line(process: subprocess.Popen[str], pattern: str) -> None:
    assert process.stderr is not None
    assert any(re.match(pattern, line) for line in process.stderr)


def wait_for_a_checkpoint(process: subprocess.Popen[str], storage: Path) -> None:
    deadline = time.monotonic() + 180
    while not list(storage.glob("listwise/*/checkpoints/checkpoint_manager_snapshot.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


class Swept(NamedTuple):
    """A sweep whose driver was killed, and what there was at that moment."""

    storage: Path
    known: str
    finished: dict[str, str]
    resumed: list[int]
    """The steps trainings went on from, as they said."""
    told: str
    """What the last start told at its end."""
    said: str
    """And what it said before that."""


@pytest.fixture(scope="module")
def swept(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Two trials of the default space, the first of them trained already.

    The driver is killed while it trains the other one, and started again at once.
    """

    storage = tmp_path_factory.mktemp("swept") / "storage"
    shutil.copytree(trained, storage)
    order = command(storage, "--trials", "2")
    # What trainings say is in Ray's logs; a short name, for there are sockets in the folder too.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as logs:
        process = subprocess.Popen(order, env={**UNHURRIED, "RAY_TMPDIR": logs}, text=True, stderr=subprocess.PIPE)
        wait_for_a_line(process, r"\d of 2 trials to run")
        wait_for_a_checkpoint(process, storage)
        time.sleep(random.uniform(0, 5))
        assert process.poll() is None
        process.kill()  # kill -9 of the driver alone: its Ray is still there when the next one starts
        process.wait()
        (study,) = storage.glob("sweeps/*/study.jsonl")
        known, finished = study.read_text(), manifests(storage, "listwise")
        again = subprocess.run(
            order, env={**os.environ, "RAY_TMPDIR": logs}, text=True, capture_output=True, check=False
        )
        assert again.returncode == 0, again.stderr
        said = "".join(file.read_text() for file in Path(logs).glob("ray/session_2*/logs/worker-*.err"))
    resumed = [int(step) for step in re.findall(r"listwise: resuming from the checkpoint at step (\d+)", said)]
    return Swept(storage, known, finished, resumed, again.stdout, again.stderr)


@pytest.mark.slow
def test_a_killed_sweep_ends_with_the_requested_number_of_trials(swept: Swept) -> None:
    rows = trials(swept.storage)
    assert [row["trial"] for row in rows] == [0, 1]
    assert {row["state"] for row in rows} <= {"finished", "stopped early"}
    # What was known at the kill is still there, word for word.
    (study,) = swept.storage.glob("sweeps/*/study.jsonl")
    assert study.read_text().startswith(swept.known)


@pytest.mark.slow
def test_no_finished_trial_is_trained_again(swept: Swept, trained: Path) -> None:
    made = manifests(swept.storage, "listwise")
    # A manifest says when its training ended, and how long it took.
    assert swept.finished.items() <= made.items()
    rows = trials(swept.storage)
    assert made.keys() == {row["key"] for row in rows if row["state"] == "finished"}
    # The first trial is the configuration itself, which was trained before the sweep.
    assert manifests(trained, "listwise") == {rows[0]["key"]: made[rows[0]["key"]]}


@pytest.mark.slow
def test_a_killed_trial_resumes_from_its_checkpoint(swept: Swept) -> None:
    assert swept.resumed
    assert all(0 < step <= 40 for step in swept.resumed)
    for key in manifests(swept.storage, "listwise"):
        lines = (swept.storage / "listwise" / key / "log.jsonl").read_text().splitlines()
        assert json.loads(lines[-1])["step"] == 40


@pytest.mark.slow
def test_widening_a_range_to_the_configured_value_is_reported(swept: Swept) -> None:
    assert "--space default is widened to include your values: listwise.lr from 1e-06 to" in swept.said


@pytest.mark.slow
@pytest.mark.parametrize("stage", BEFORE)
def test_artifacts_before_the_trials_are_made_once(stage: str, swept: Swept, trained: Path) -> None:
    assert manifests(swept.storage, stage) == manifests(trained, stage)


@pytest.mark.slow
def test_the_best_trial_is_compared_with_the_preset_and_best_yaml_is_its_configuration(
    swept: Swept, trained: Path
) -> None:
    storage = swept.storage
    (own,) = manifests(trained, "listwise").values()
    told = re.match(r"best: trial (\d), dev MRR@10 ([\d.]+), unchanged settings ([\d.]+): ", swept.told)
    assert told, swept.told
    assert told[3] == f"{json.loads(own)['dev']:.4f}"
    assert float(told[2]) >= float(told[3])
    winner = trials(storage)[int(told[1])]
    assert f"{winner['dev MRR@10']:.4f}" == told[2]
    (file,) = storage.glob("sweeps/*/best.yaml")
    built = build("demo", str(file))
    # The file leaves out what every start finds out anew.
    for section, stage in (("dataset", "corpus"), ("encoder", "listwise")):
        made = json.loads(next(iter(manifests(storage, stage).values())))["config"][section]
        found = getattr(built, section).model_copy(update={"fingerprint": made["fingerprint"]})
        built = built.model_copy(update={section: found})
    assert flow.key("listwise", built) == winner["key"]


@pytest.mark.slow
def test_the_report_embeds_its_plots_and_no_files_of_tune_remain(swept: Swept) -> None:
    (page,) = swept.storage.glob("sweeps/*/report.html")
    assert page.read_text().count("data:image/png;base64,") >= 3
    assert not (page.parent / "tune").exists()
    assert not list(swept.storage.glob("listwise/*/checkpoints"))


@pytest.mark.slow
def test_the_gpus_of_a_node_are_sampled_on_that_node(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 80\n")
    program.chmod(0o755)
    script = """
import time, ray
from rayrank.tune.gpu_usage import gpu_watch
ray.init(address="local", num_gpus=1, include_dashboard=False, log_to_driver=False)
with gpu_watch() as usage:
    deadline = time.monotonic() + 60
    while usage().samples < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    print("busy", usage().busy / usage().samples)
"""
    paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path)}
    order = [sys.executable, "-c", script]
    answer = subprocess.run(order, env={**os.environ, **paths}, text=True, capture_output=True, check=False)
    assert "busy 0.8\n" in answer.stdout, answer.stderr


@pytest.mark.slow
def test_failed_trials_are_reported_with_their_reasons_and_the_sweep_continues(trained: Path, tmp_path: Path) -> None:
    storage, space = tmp_path / "storage", tmp_path / "space.yaml"
    shutil.copytree(trained, storage)
    own = build("demo", assignments=settings())
    # The first trial is killed, the second diverges, the third is the configuration itself, which is trained already.
    space.write_text(f"listwise.lr: [{own.listwise.lr / 2}, 1e30, {own.listwise.lr}]\n")
    more = ["--space", str(space), "--grid", "--parallel", "1", "--set", "resources.retries=0"]
    process = subprocess.Popen(command(storage, *more), env=UNHURRIED, text=True, stderr=subprocess.PIPE)
    wait_for_a_checkpoint(process, storage)
    (worker,) = below(process.pid, "RayTrainWorker")
    worker.kill()  # as the kernel does when memory runs out

    _, said = process.communicate(timeout=300)

    assert process.returncode == 0, said
    killed, diverged, reused = trials(storage)
    assert [row["state"] for row in (killed, diverged, reused)] == ["failed", "failed", "finished"]
    assert killed["reason"] == "A worker of the training died: it was killed, or the machine ran out of memory."
    assert "is nan: lower the learning rate" in diverged["reason"]
    (page,) = storage.glob("sweeps/*/report.html")
    for row in (killed, diverged):
        assert f"trial {row['trial']} failed: " in said
        assert row["reason"][:20] in page.read_text()


def test_scoring_cost_is_a_second_objective(trained: Path, joining: dict[str, str], tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "storage")
    # One trial, the configuration itself, which is trained already.
    order = command(tmp_path / "storage", "--cost", "--trials", "1")
    answer = FORKS.run(order, joining)

    assert answer.returncode == 0, answer.stderr
    assert "Pareto front: trial" in answer.stdout
    rows = trials(tmp_path / "storage")
    assert [row["state"] for row in rows] == ["finished"]
    assert all(row["ms_per_query"] == pytest.approx(1000 * 10 / row["pairs_per_s"]) for row in rows)
    assert any(row["pareto"] for row in rows)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--set", "resources.train_cpus=100000"], "resources.train_workers=1 with 100000 cores"),
        (["--space", "nowhere.yaml"], "--space nowhere.yaml cannot be read"),
    ],
)
def test_a_sweep_that_cannot_run_is_one_sentence_before_any_stage_runs(
    more: list[str], told: str, tmp_path: Path
) -> None:
    answer = FORKS.run(command(tmp_path, *more), os.environ)
    assert answer.returncode == 2, answer.stderr
    lines = [line for line in answer.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert told in lines[0]
    assert not list(tmp_path.glob("corpus/*"))
