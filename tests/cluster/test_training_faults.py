"""Training that loses a worker or the driver is resumed, and ends with the weights of an uninterrupted training."""

import json
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from tests.processes import below, kill_whole, of_those

from .conftest import FORKS, UNHURRIED, command


def weights(storage: Path) -> dict[str, torch.Tensor]:
    (file,) = storage.glob("pointwise/*/model/model.safetensors")
    return safetensors.torch.load_file(file)


def log_lines(storage: Path) -> list[dict[str, float]]:
    (file,) = storage.glob("pointwise/*/log.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def kill_worker(process: subprocess.Popen[str]) -> None:
    workers = below(process.pid, "RayTrainWorker")
    assert workers
    of_those(workers, lambda worker: worker.kill())


def untrained(trained: Path, storage: Path) -> None:
    shutil.copytree(trained, storage)
    for phase in ("pointwise", "listwise"):
        shutil.rmtree(storage / phase)


def started(storage: Path, *more: str) -> subprocess.Popen[str]:
    """Start the pointwise phase, whose checkpoints are far enough apart to be killed in between."""
    order = command("train_pointwise", storage, *more)
    return subprocess.Popen(order, env=UNHURRIED, text=True, stderr=subprocess.PIPE)


def wait_for_a_checkpoint(process: subprocess.Popen[str], storage: Path) -> None:
    deadline = time.monotonic() + 180
    # Ray Train writes this once it counts on a checkpoint.
    while not list(storage.glob("pointwise/*/checkpoints/checkpoint_manager_snapshot.json")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)


def wait_until_resumed(process: subprocess.Popen[str]) -> str:
    """Return what a job said until a worker resumed."""
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if re.search(r"pointwise: resuming from the checkpoint at step [123]0", line):
            return said
    raise AssertionError(said)


def assert_same_end(storage: Path, trained: Path) -> None:
    expected = weights(trained)
    assert expected.keys() == weights(storage).keys()
    for name, tensor in weights(storage).items():
        assert torch.equal(tensor, expected[name]), name
    columns = [[(line["step"], line["loss"], line["dev"]) for line in log_lines(place)] for place in (storage, trained)]
    assert columns[0] == columns[1]


# All three phases resume in tests/unit/training.
@pytest.mark.timeout(600)
def test_after_kills_of_workers_and_of_the_driver_the_weights_equal_those_of_an_uninterrupted_training(
    trained: Path, tmp_path: Path
) -> None:
    storage = tmp_path / "storage"
    untrained(trained, storage)
    process = started(storage)
    wait_for_a_checkpoint(process, storage)
    kill_worker(process)
    wait_until_resumed(process)
    kill_whole(process)
    assert not list(storage.glob("pointwise/*/manifest.json"))

    again = started(storage, "--set", "resources.retries=1")
    said = wait_until_resumed(again)
    kill_worker(again)
    assert again.stderr is not None
    said += again.stderr.read()

    assert again.wait(timeout=300) == 0, said
    assert said.count("pointwise: resuming from the checkpoint at step ") == 2
    assert_same_end(storage, trained)
    assert not list(storage.glob("pointwise/*/checkpoints"))


@pytest.mark.slow
def test_a_training_whose_controller_dies_goes_on_from_its_checkpoint(trained: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    untrained(trained, storage)
    process = started(storage)
    wait_for_a_checkpoint(process, storage)
    of_those(below(process.pid, "TrainController"), lambda controller: controller.kill())

    _, said = process.communicate(timeout=300)

    assert process.returncode == 0, said
    assert said.count("pointwise: Ray Train's controller died; training goes on from the last checkpoint") == 1
    assert "pointwise: resuming from the checkpoint at step " in said
    assert_same_end(storage, trained)


@pytest.mark.slow
def test_losing_the_controller_more_often_than_retries_allows_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    untrained(trained, storage)
    process = started(storage, "--set", "resources.retries=0")
    wait_for_a_checkpoint(process, storage)
    of_those(below(process.pid, "TrainController"), lambda controller: controller.kill())

    _, said = process.communicate(timeout=300)

    assert process.returncode == 2, said
    assert re.search(r"^error: Training lost its controller more than resources\.retries=0 times: ", said, re.M)
    assert "Traceback" not in said


@pytest.mark.slow
def test_losing_workers_more_often_than_retries_allows_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    untrained(trained, storage)
    process = started(storage, "--set", "resources.retries=0")
    wait_for_a_checkpoint(process, storage)
    kill_worker(process)

    _, said = process.communicate(timeout=300)

    assert process.returncode == 2, said
    assert re.search(
        r"^error: Training lost its workers more than resources\.retries=0 times: .*; run the same", said, re.M
    )
    assert "Traceback" not in said


@pytest.mark.slow
def test_two_jobs_that_train_the_same_model_at_once_train_it_once(trained: Path, tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    untrained(trained, storage)
    order = command("train_pointwise", storage)
    first = subprocess.Popen(order, env=UNHURRIED, text=True, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 180
    while not list(storage.glob("pointwise/*/checkpoints/*")):
        assert time.monotonic() < deadline
        assert first.poll() is None
        time.sleep(0.05)

    second = subprocess.run(order, text=True, stderr=subprocess.PIPE, check=False, timeout=300)
    _, said = first.communicate(timeout=300)

    assert first.returncode == 0, said
    assert second.returncode == 0, second.stderr
    assert re.search(
        rf"^waiting for \S+, process {first.pid}, which has been making pointwise since 20", second.stderr, re.M
    )
    assert "pointwise: the other process has finished it; its result is used" in second.stderr
    assert_same_end(storage, trained)
    assert not list(storage.glob("pointwise/*/lease-*"))


@pytest.mark.slow
def test_two_workers_have_the_loss_curve_of_one_with_the_whole_batch(
    trained: Path, joining: dict[str, str], tmp_path: Path
) -> None:
    curves = []
    for workers in (1, 2):
        storage = tmp_path / f"storage-{workers}"
        shutil.copytree(trained, storage)
        shutil.rmtree(storage / "pointwise")
        # Dropout is drawn by each worker for itself.
        changed = ["encoder.dropout=0", "pretrain.enabled=false", "pointwise.max_steps=10"]
        # A line of the log with every checkpoint.
        changed += [f"resources.train_workers={workers}", "resources.checkpoint_steps=2"]
        more = [part for setting in changed for part in ("--set", setting)]
        answer = FORKS.run(command("train_pointwise", storage, *more), joining)
        assert answer.returncode == 0, answer.stderr
        curves.append([(line["loss"], line["dev"]) for line in log_lines(storage)])
    assert len(curves[0]) >= 5
    for (loss, dev), (other_loss, other_dev) in zip(*curves, strict=True):
        assert loss == pytest.approx(other_loss, abs=1e-4)
        assert dev == pytest.approx(other_dev, abs=1e-3) if dev is not None else other_dev is None


def test_a_loss_of_nan_is_one_sentence(trained: Path, joining: dict[str, str], tmp_path: Path) -> None:
    storage = tmp_path / "storage"
    shutil.copytree(trained, storage)

    order = command("train_pointwise", storage, "--set", "pointwise.lr=1e30")
    answer = FORKS.run(order, joining)

    assert answer.returncode == 2, answer.stderr
    assert re.search(
        r"^error: The loss at step \d+ is nan: lower the learning rate \(now 1e\+30\)", answer.stderr, re.M
    )
    assert "Traceback" not in answer.stderr
