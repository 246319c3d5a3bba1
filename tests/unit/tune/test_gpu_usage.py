import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray

from rayrank.tune import gpu_usage
from rayrank.tune.gpu_usage import GpuUsage


@pytest.fixture
def nvidia_smi_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts an nvidia-smi on the PATH that prints some lines, because machines without a GPU have none."""

    def put(lines: str, before: str = "") -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{before}\nprintf '{lines}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    monkeypatch.setattr(gpu_usage, "PERIOD", 0.01)
    return put


def usage_after(samples: int) -> GpuUsage:
    sampler, deadline = gpu_usage._Sampler(), time.monotonic() + 20
    while sampler.usage().samples < samples:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return sampler.usage()


def test_every_sample_counts_all_gpus_of_a_node(nvidia_smi_prints: Callable[..., None]) -> None:
    nvidia_smi_prints("100\\n40\\n")
    usage = usage_after(6)
    assert usage.samples % 2 == 0
    assert usage.busy / usage.samples == pytest.approx(0.7)


def test_a_gpu_without_a_utilization_is_left_out(nvidia_smi_prints: Callable[..., None]) -> None:
    nvidia_smi_prints("[N/A]\\n25\\n")
    usage = usage_after(2)
    assert usage.busy / usage.samples == pytest.approx(0.25)


def test_sampling_continues_after_a_failed_sample(nvidia_smi_prints: Callable[..., None], tmp_path: Path) -> None:
    nvidia_smi_prints("50\\n", before=f"mkdir {tmp_path}/second 2>/dev/null && exit 9")
    usage = usage_after(2)
    assert (tmp_path / "second").exists()
    assert usage.busy / usage.samples == pytest.approx(0.5)


def test_without_nvidia_smi_sampling_ends_without_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called = threading.Event()

    def run(*command: object, **options: object) -> None:
        called.set()
        subprocess_run(*command, **options)

    subprocess_run: Any = subprocess.run
    monkeypatch.setattr(gpu_usage.subprocess, "run", run)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = set(threading.enumerate())
    sampler = gpu_usage._Sampler()
    assert called.wait(20)
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()
    assert sampler.usage() == GpuUsage(0.0, 0)


def test_a_node_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray raises an error for one of two nodes."""
    answers: list[Any] = [GpuUsage(3.0, 4), ray.exceptions.GetTimeoutError("no answer")]

    def get(answer: Any) -> GpuUsage:
        if isinstance(answer, Exception):
            raise answer
        return cast(GpuUsage, answer)

    class Started:
        def __init__(self, answer: Any) -> None:
            self.usage = SimpleNamespace(remote=lambda: answer)

    made = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: Started(answers.pop())))
    node = {"NodeID": "0" * 56, "Alive": True, "Resources": {"GPU": 1}}
    stand_ins: dict[str, Any] = {"nodes": lambda: [node, node], "remote": lambda _: made, "get": get, "kill": print}
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(gpu_usage.ray, name, stand_in)
    with gpu_usage.gpu_watch() as usage:
        assert usage() == GpuUsage(3.0, 4)
