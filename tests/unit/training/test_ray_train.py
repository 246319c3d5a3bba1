"""Messages between a worker and the driver, without Ray: queues of the standard library replace those of Ray."""

import logging
import pickle
import queue
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.fs
import pytest
import ray.util.queue
import torch

from rayrank.core.artifacts import Artifact
from rayrank.core.config import ListwiseConfig, ResourcesConfig, TrainingConfig
from rayrank.core.errors import TrainingStopped
from rayrank.training import ray_worker
from rayrank.training.loop import Log
from rayrank.training.ray_train import AtomicJson, Report, follow
from rayrank.training.ray_worker import DriverQueues, await_decision, run_worker


class Queue(queue.Queue[Any]):
    def get(self, block: bool = True, timeout: float | None = 20.0) -> Any:
        try:
            return super().get(block, timeout)
        except queue.Empty:
            raise ray.util.queue.Empty from None

    def shutdown(self, *_: Any) -> None:
        """A queue of Ray's is an actor that has to be ended."""


class History:
    """A log on a disk that may be full."""

    def __init__(self, *fails: str) -> None:
        self._fails = fails

    def _try(self, what: str) -> None:
        if what in self._fails:
            raise OSError(f"disk full: cannot {what}")

    def open(self) -> None:
        self._try("open")

    def add(self, line: Log) -> None:
        self._try("add")

    def close(self) -> None:
        self._try("close")


def line(step: int, dev: float | None = 0.5) -> dict[str, Any]:
    return asdict(Log(step, 40, loss=1.0, lr=1e-4, grad_norm=1.0, examples_per_s=1.0, dev=dev))


def queues() -> Any:
    return DriverQueues(Queue(), Queue())  # type: ignore[arg-type]


def following(driver: DriverQueues, history: History, report: Report | None) -> Any:
    return follow(driver, history, "listwise", report)  # type: ignore[arg-type]


def lost(measured: Log) -> bool:
    raise ray.exceptions.RayActorError


@pytest.mark.parametrize(("history", "report"), [(History(), lost), (History("add"), lambda measured: True)])
def test_workers_continue_where_logging_or_reporting_fails(
    history: History, report: Report, caplog: pytest.LogCaptureFixture
) -> None:
    driver = queues()
    with caplog.at_level(logging.ERROR), following(driver, history, report):
        for step in (10, 20):
            driver.messages.put(line(step))
            assert await_decision(driver.decisions, step, is_first=True)
    assert "step 10 could not be logged; training continues" in caplog.text
    assert "step 20 could not be logged" in caplog.text


def test_a_log_that_cannot_be_opened_fails_the_training_before_it_starts() -> None:
    driver = queues()
    driver.messages.put(line(10))

    with pytest.raises(OSError, match="disk full: cannot open"), following(driver, History("open"), lambda line: True):
        await_decision(driver.decisions, 10, is_first=True)


def test_every_measurement_has_its_own_decision_though_a_worker_died_before_reading_one() -> None:
    driver = queues()
    with following(driver, History(), lambda measured: measured.step != 30):
        # The worker that sends this dies, and its successor starts again before that step.
        driver.messages.put(line(20))
        for step in (10, 20):
            driver.messages.put(line(step))
            assert await_decision(driver.decisions, step, is_first=True)
        driver.messages.put(line(25, dev=None))
        driver.messages.put(line(30))
        assert not await_decision(driver.decisions, 30, is_first=True)


def test_a_batch_that_does_not_fit_into_memory_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    cores = SimpleNamespace(get_assigned_resources=lambda: {"CPU": torch.get_num_threads()})
    monkeypatch.setattr(ray_worker, "fit", fit)
    monkeypatch.setattr(ray_worker.ray.train, "get_context", lambda: context)
    monkeypatch.setattr(ray_worker.ray.train.torch, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(ray_worker.ray, "get_runtime_context", lambda: cores)
    driver = queues()
    resources = ResourcesConfig(train_gpus=0.25)
    model, phase = torch.nn.Linear(1, 1), SimpleNamespace(facts=dict, num_examples=lambda: 100)
    model.description = dict  # type: ignore[assignment]

    with (
        pytest.raises(
            TrainingStopped,
            match=r"^A batch does not fit into the memory of cpu: set listwise\.micro_batch_size to less than 8, "
            r"or raise resources\.train_gpus=0\.25: a worker has that share of the memory\.$",
        ),
        following(driver, History(), None),
    ):
        run_worker(
            lambda: (model, phase),  # type: ignore[arg-type,return-value]
            "listwise", ListwiseConfig(batch_size=8), TrainingConfig(), resources, driver,
        )  # fmt: skip


def test_a_list_of_checkpoints_is_replaced_atomically(tmp_path: Path) -> None:
    storage = pyarrow.fs.PyFileSystem(AtomicJson(Artifact(str(tmp_path), "listwise", "1a2b")))
    there = pickle.loads(pickle.dumps(storage))  # Ray Train's controller is another process
    there.create_dir(str(tmp_path / "listwise/1a2b/checkpoints"))
    file = tmp_path / "listwise/1a2b/checkpoints/checkpoint_manager_snapshot.json"
    for number in range(3):
        with there.open_output_stream(str(file)) as stream:
            stream.write(f"whole {number}".encode())
            stream.flush()
            assert number == 0 or file.read_text() == f"whole {number - 1}"
        assert file.read_text() == f"whole {number}"
    with pytest.raises(KeyError), there.open_output_stream(str(file)):
        raise KeyError
    assert file.read_text() == "whole 2"
    assert list(file.parent.iterdir()) == [file]
