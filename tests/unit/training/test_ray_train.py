"""What a worker and the driver say to each other, without Ray: queues of the standard library stand in for its own."""

import logging
import pickle
import queue
from contextlib import nullcontext
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
from rayrank.training.ray_train import Report, WholeJson, _followed
from rayrank.training.ray_worker import _wanted, work


class Queue(queue.Queue[Any]):
    def get(self, block: bool = True, timeout: float | None = 20.0) -> Any:
        try:
            return super().get(block, timeout)
        except queue.Empty:
            raise ray.util.queue.Empty from None

    def shutdown(self, *_: Any) -> None:
        """A queue of Ray's is an actor that has to be ended."""


class History(nullcontext[None]):
    def __init__(self, fails: bool = False) -> None:
        super().__init__()
        self.fails = fails

    def add(self, line: Log) -> None:
        if self.fails:
            raise OSError("disk full")


def line(step: int, dev: float | None = 0.5) -> dict[str, Any]:
    return asdict(Log(step, 40, loss=1.0, lr=1e-4, grad_norm=1.0, examples_per_s=1.0, dev=dev))


def followed(board: Queue, answers: Queue | None, history: History, report: Report | None) -> Any:
    return _followed(board, answers, history, "listwise", report)  # type: ignore[arg-type]


def lost(told: Log) -> bool:
    raise ray.exceptions.RayActorError


@pytest.mark.parametrize(("history", "report"), [(History(), lost), (History(fails=True), lambda told: True)])
def test_workers_go_on_where_the_follower_fails(
    history: History, report: Report, caplog: pytest.LogCaptureFixture
) -> None:
    board, answers = Queue(), Queue()
    with caplog.at_level(logging.ERROR), followed(board, answers, history, report):
        for step in (10, 20):
            board.put(line(step))
            assert _wanted(answers, step, first=True)  # type: ignore[arg-type]
    assert "what step 10 measured could not be told; training goes on" in caplog.text
    assert "what step 20 measured" in caplog.text


def test_every_measurement_has_its_own_answer_whoever_died_before_hearing_one() -> None:
    board, answers = Queue(), Queue()
    with followed(board, answers, History(), lambda told: told.step != 30):
        # The worker that says this dies, and the next one starts again before it.
        board.put(line(20))
        for step in (10, 20):
            board.put(line(step))
            assert _wanted(answers, step, first=True)  # type: ignore[arg-type]
        board.put(line(25, dev=None))
        board.put(line(30))
        assert not _wanted(answers, 30, first=True)  # type: ignore[arg-type]


def test_a_batch_that_does_not_fit_is_the_sentence_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(*_: Any, **__: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    context = SimpleNamespace(get_world_rank=lambda: 0, get_world_size=lambda: 1)
    cores = SimpleNamespace(get_assigned_resources=lambda: {"CPU": torch.get_num_threads()})
    monkeypatch.setattr(ray_worker, "fit", fit)
    monkeypatch.setattr(ray_worker.ray.train, "get_context", lambda: context)
    monkeypatch.setattr(ray_worker.ray.train.torch, "get_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(ray_worker.ray, "get_runtime_context", lambda: cores)
    board: Any = Queue()
    resources = ResourcesConfig(train_gpus=0.25)

    with (
        pytest.raises(
            TrainingStopped,
            match=r"^A batch does not fit into the memory of cpu: set micro_batch_size of this phase to less than 8, "
            r"or raise resources\.train_gpus=0\.25: a worker has that share of the memory\.$",
        ),
        followed(board, None, History(), None),
    ):
        work(
            lambda: (torch.nn.Linear(1, 1), SimpleNamespace()),  # type: ignore[arg-type,return-value]
            ListwiseConfig(batch_size=8), TrainingConfig(), resources, board, None,
        )  # fmt: skip


def test_a_list_of_checkpoints_stays_whole_until_the_next_one_is(tmp_path: Path) -> None:
    storage = pyarrow.fs.PyFileSystem(WholeJson(Artifact(str(tmp_path), "listwise", "1a2b")))
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
