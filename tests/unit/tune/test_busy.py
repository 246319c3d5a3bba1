import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tune import busy
from tune.busy import Busy


@pytest.fixture
def says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts an nvidia-smi in the way that prints some lines: machines without a GPU have none."""

    def put(lines: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{lines}'\n")
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


def test_every_gpu_of_a_node_counts_at_every_look(says: Callable[[str], None]) -> None:
    says("100\\n40\\n")
    seen = seen_after(6)
    assert seen.looks % 2 == 0
    assert seen.busy / seen.looks == pytest.approx(0.7)


def test_a_gpu_that_does_not_know_is_left_out(says: Callable[[str], None]) -> None:
    says("[N/A]\\n25\\n")
    seen = seen_after(2)
    assert seen.busy / seen.looks == pytest.approx(0.25)


def test_without_a_gpu_nothing_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    watch = busy._Watch()
    time.sleep(0.1)
    assert watch.seen() == Busy(0.0, 0)
