"""Ray's start on this machine: repeated where the machine was too busy, and only there."""

import pytest
import ray

from rayrank.cluster.connection import ATTEMPTS, start_here

TOO_LATE = Exception("The current node timed out during startup. This could happen because ...")
"""What Ray raises if its processes do not start in time."""


def fail(monkeypatch: pytest.MonkeyPatch, *errors: Exception) -> list[str]:
    """Let each start of Ray raise the next error, if there is one left; return the addresses of all starts."""
    left, starts = list(errors), list[str]()

    def init(address: str) -> None:
        starts.append(address)
        if left:
            raise left.pop(0)

    monkeypatch.setattr(ray, "init", init)
    return starts


def test_a_start_that_a_busy_machine_delayed_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = fail(monkeypatch, TOO_LATE, TOO_LATE)
    start_here()
    assert starts == ["local"] * 3


def test_after_the_last_attempt_the_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = fail(monkeypatch, *[TOO_LATE] * 9)
    with pytest.raises(Exception, match="timed out during startup"):
        start_here()
    assert len(starts) == ATTEMPTS


def test_another_error_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = fail(monkeypatch, ValueError("the port is taken"))
    with pytest.raises(ValueError, match="the port is taken"):
        start_here()
    assert len(starts) == 1
