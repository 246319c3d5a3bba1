"""The device of a worker that scores, embeds or writes documents."""

import pytest
import torch

from rayrank.core.config import ResourcesConfig
from rayrank.models.inference.prepare import prepare_device


@pytest.mark.parametrize(("share", "fraction"), [(None, 1.0), (0.25, 0.25)])
def test_a_worker_takes_no_more_of_a_gpu_than_its_share(
    share: float | None, fraction: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", limits.append)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: pytest.fail("a GPU needs no limit of threads"))

    assert prepare_device(3, ResourcesConfig(train_gpus=share)) == torch.device("cuda")
    assert limits == [fraction]


def test_a_worker_without_a_gpu_takes_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)

    assert prepare_device(3, ResourcesConfig()) == torch.device("cpu")
    assert threads == [3]
