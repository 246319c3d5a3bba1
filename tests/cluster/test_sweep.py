"""Sweeps on a real Ray: trials share what comes before them, fail as what they are, and outlive the driver."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from rayrank import flow
from rayrank.overrides import build

from .conftest import UNHURRIED, settings

BEFORE = ("corpus", "index", "candidates", "query_types", "pretrain", "pointwise", "noise")


def command(storage: Path, *more: str) -> list[str]:
    chosen = [part for setting in settings() for part in ("--set", setting)]
    return [sys.executable, "-m", "tune.sweep", "--storage", str(storage), *chosen, *more]


def manifests(storage: Path, stage: str) -> dict[str, str]:
    return {path.parent.name: path.read_text() for path in storage.glob(f"{stage}/*/manifest.json")}


def trials(storage: Path) -> list[dict[str, Any]]:
    (file,) = storage.glob("sweeps/*/trials.parquet")
    rows: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return rows


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    below = psutil.Process(process.pid).children(recursive=True)
    return [one for one in below if "RayTrainWorker" in " ".join(one.cmdline())]


def wait_for_a_checkpoint(process: subprocess.Popen[str], storage: Path) -> None:
    deadline = time.monotonic() + 180
    while not list(storage.glob("listwise/*/checkpoints/checkpoint_manager_snapshot.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


@pytest.fixture(scope="module")
def swept(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Four trials of the default space, the driver killed while two of them train, and the same command again."""
    storage = tmp_path_factory.mktemp("swept") / "storage"
    shutil.copytree(trained, storage)
    first = subprocess.Popen(command(storage, "--trials", "4"), env=UNHURRIED, text=True, stderr=subprocess.PIPE)
    wait_for_a_checkpoint(first, storage)
    orphans = workers_of(first)
    first.kill()  # kill -9 of the driver alone: its Ray has to go with it
    assert not psutil.wait_procs(orphans, timeout=30)[1]
    (study,) = storage.glob("sweeps/*/study.jsonl")
    told = study.read_text().splitlines()
    again = subprocess.run(command(storage, "--trials", "4"), text=True, stderr=subprocess.PIPE, check=False)
    assert again.returncode == 0, again.stderr
    return storage, told


def test_a_killed_sweep_ends_with_as_many_trials_as_were_asked_for(swept: tuple[Path, list[str]]) -> None:
    storage, told = swept
    assert [row["trial"] for row in trials(storage)] == [0, 1, 2, 3]
    assert {row["state"] for row in trials(storage)} <= {"finished", "stopped early"}
    # What was known at the kill is still there, word for word.
    (study,) = storage.glob("sweeps/*/study.jsonl")
    assert study.read_text().splitlines()[: len(told)] == told


def test_no_trial_was_run_twice(swept: tuple[Path, list[str]], trained: Path) -> None:
    storage, _ = swept
    made = manifests(storage, "listwise")
    finished = [row for row in trials(storage) if row["state"] == "finished"]
    assert made.keys() == {row["key"] for row in finished}
    # The first trial is the configuration itself, which was trained before the sweep.
    (own,) = manifests(trained, "listwise").items()
    assert made[own[0]] == own[1]
    assert trials(storage)[0]["key"] == own[0]
    # A trial that goes on logs each of its steps once.
    for key in made:
        lines = [json.loads(line) for line in (storage / "listwise" / key / "log.jsonl").read_text().splitlines()]
        steps = [line["step"] for line in lines]
        assert steps == sorted(set(steps))
        assert steps[-1] == 40


@pytest.mark.parametrize("stage", BEFORE)
def test_everything_before_the_trials_was_made_once(stage: str, swept: tuple[Path, list[str]], trained: Path) -> None:
    assert manifests(swept[0], stage) == manifests(trained, stage)


def test_the_best_is_at_least_as_good_as_the_preset_and_best_yaml_is_its_configuration(
    swept: tuple[Path, list[str]],
) -> None:
    storage, _ = swept
    rows = trials(storage)
    winner = max(rows, key=lambda row: row["dev_mrr_10"])
    assert winner["dev_mrr_10"] >= rows[0]["dev_mrr_10"]
    (file,) = storage.glob("sweeps/*/best.yaml")
    built = build("demo", str(file))
    # The file leaves out what every start finds out anew.
    for section, stage in (("dataset", "corpus"), ("encoder", "listwise")):
        made = json.loads(next(iter(manifests(storage, stage).values())))["config"][section]
        found = getattr(built, section).model_copy(update={"fingerprint": made["fingerprint"]})
        built = built.model_copy(update={section: found})
    assert flow.key("listwise", built) == winner["key"]


def test_the_page_has_its_plots_inside_and_nothing_of_tune_is_left(swept: tuple[Path, list[str]]) -> None:
    (page,) = swept[0].glob("sweeps/*/report.html")
    assert page.read_text().count("data:image/png;base64,") >= 3
    assert not (page.parent / "tune").exists()
    assert not list(swept[0].glob("listwise/*/checkpoints"))


def test_trials_that_fail_are_shown_as_what_they_are_and_the_sweep_goes_on(trained: Path, tmp_path: Path) -> None:
    storage, space = tmp_path / "storage", tmp_path / "space.yaml"
    shutil.copytree(trained, storage)
    own = build("demo", assignments=settings())
    # The second of the four is the configuration itself, which is trained already.
    space.write_text(f"listwise.lr: [{own.listwise.lr}, 1e30]\nnoise.threshold: [1, {own.noise.threshold}]\n")
    more = ["--space", str(space), "--grid", "--set", "resources.retries=0"]
    process = subprocess.Popen(command(storage, *more), env=UNHURRIED, text=True, stderr=subprocess.PIPE)
    wait_for_a_checkpoint(process, storage)
    for file in storage.glob("noise/*/train/*.parquet"):
        file.write_bytes(b"damaged")
    # As the kernel does when memory runs out; the oldest is the first trial's.
    min(workers_of(process), key=lambda worker: worker.create_time()).kill()

    _, said = process.communicate(timeout=300)

    assert process.returncode == 0, said
    killed, reused, diverged, raised = trials(storage)
    assert [row["state"] for row in (killed, reused, diverged, raised)] == ["failed", "finished", "failed", "failed"]
    assert "worker" in killed["reason"]
    assert "is nan: lower the learning rate" in diverged["reason"]
    assert "ArrowInvalid" in raised["reason"]
    (page,) = storage.glob("sweeps/*/report.html")
    for row in (killed, diverged, raised):
        assert f"trial {row['trial']} failed: " in said
        assert row["reason"][:20] in page.read_text()


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--set", "resources.train_cpus=64"], "resources.train_workers=1 with 64 cores"),
        (["--space", "nowhere.yaml"], "--space nowhere.yaml cannot be read"),
    ],
)
def test_what_cannot_be_run_is_one_sentence_before_anything_runs(more: list[str], told: str, tmp_path: Path) -> None:
    answer = subprocess.run(command(tmp_path, *more), text=True, stderr=subprocess.PIPE, check=False)
    assert answer.returncode == 2, answer.stderr
    lines = [line for line in answer.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert told in lines[0]
    assert not list(tmp_path.glob("corpus/*"))
