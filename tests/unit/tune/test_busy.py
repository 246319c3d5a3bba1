import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray

from tune import busy
from tune.busy import Busy


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts an nvidia-smi in the way that prints some lines: machines without a GPU have none."""

    def put(lines: str, before: str = "") -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{before}\nprintf '{lines}'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    monkeypatch.setattr(busy, "PERIOD", 0.01)
    return put


def seen_after(looks: int) -> Busy:
    watch, deadline = busy._Watch(), time.monotonic() + 20
    while watch.seen().looks < looks:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return watch.seen()


def test_every_gpu_of_a_node_counts_at_every_look(says: Callable[..., None]) -> None:
    says("100\\n40\\n")
    seen = seen_after(6)
    assert seen.looks % 2 == 0
    assert seen.busy / seen.looks == pytest.approx(0.7)


def test_a_gpu_that_does_not_know_is_left_out(says: Callable[..., None]) -> None:
    says("[N/A]\\n25\\n")
    seen = seen_after(2)
    assert seen.busy / seen.looks == pytest.approx(0.25)


def test_a_look_that_fails_is_not_the_last_one(says: Callable[..., None], tmp_path: Path) -> None:
    says("50\\n", before=f"mkdir {tmp_path}/second 2>/dev/null && exit 9")
    seen = seen_after(2)
    assert (tmp_path / "second").exists()
    assert seen.busy / seen.looks == pytest.approx(0.5)


def test_without_a_gpu_it_looks_once_and_sees_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = threading.Event()

    def run(*command: object, **options: object) -> None:
        looked.set()
        subprocess_run(*command, **options)

    subprocess_run: Any = subprocess.run
    monkeypatch.setattr(busy.subprocess, "run", run)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = set(threading.enumerate())
    watch = busy._Watch()
    assert looked.wait(20)
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive()
    assert watch.seen() == Busy(0.0, 0)


def test_a_watch_that_does_not_answer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two nodes one is lost, in whatever way Ray says so."""
    answers: list[Any] = [Busy(3.0, 4), ray.exceptions.GetTimeoutError("no answer")]

    def get(answer: Any) -> Busy:
        if isinstance(answer, Exception):
            raise answer
        return cast(Busy, answer)

    class Started:
        def __init__(self, answer: Any) -> None:
            self.seen = SimpleNamespace(remote=lambda: answer)

    made = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: Started(answers.pop())))
    node = {"NodeID": "0" * 56, "Alive": True, "Resources": {"GPU": 1}}
    stand_ins: dict[str, Any] = {"nodes": lambda: [node, node], "remote": lambda _: made, "get": get, "kill": print}
    for name, stand_in in stand_ins.items():
        monkeypatch.setattr(busy.ray, name, stand_in)
    with busy.watched() as seen:
        assert seen() == Busy(3.0, 4)
