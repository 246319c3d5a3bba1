"""A server is stopped by a signal at any time, and a Ray that cannot be used gives one sentence."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from ray import serve

from rayrank.core.errors import ConfigError
from rayrank.serve import app, draining, run as command
from rayrank.serve.config import ServeConfig, read
from rayrank.serve.run import SIGNALS, Stopped, _join_ray, _serve, _settings, parser


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the handlers of this process after the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.usefixtures("handlers")
def test_a_signal_interrupts_the_start_and_a_second_one_ends_the_process(number: signal.Signals) -> None:
    stopped = Stopped()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
    assert stopped.event.is_set()
    assert [signal.getsignal(each) for each in SIGNALS] == [signal.SIG_DFL, signal.SIG_DFL]


@pytest.mark.usefixtures("handlers")
def test_a_signal_does_not_interrupt_a_server_that_is_up() -> None:
    stopped = Stopped()
    stopped.is_up = True
    os.kill(os.getpid(), signal.SIGTERM)
    assert stopped.event.wait(10)


@pytest.mark.parametrize(
    ("words", "models"),
    [
        (["m/one"], {"one": "m/one"}),
        (["one=m/two"], {"one": "m/two"}),
        (["a/b", "c/d"], {"b": "a/b", "d": "c/d"}),
        (["large=a/b", "team/v1.5=c/d"], {"large": "a/b", "team/v1.5": "c/d"}),
    ],
)
def test_each_model_of_the_command_line_may_have_a_name(words: list[str], models: dict[str, str]) -> None:
    options = parser().parse_args([word for model in words for word in ("--model", model)])
    found = read(_settings(options)).each()
    assert {name: each.model for name, each in found.items()} == {
        name: str(Path(folder).absolute()) for name, folder in models.items()
    }


def test_two_models_of_the_command_line_cannot_have_one_name() -> None:
    with pytest.raises(ConfigError, match="c/b has the name b of another model: write --model NAME=c/b"):
        _settings(parser().parse_args(["--model", "x", "--model", "a/b", "--model", "c/b"]))


def test_an_address_that_is_no_ray_gives_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    with pytest.raises(
        ConfigError, match=r"^RAY_ADDRESS=nonsense cannot be joined: .*nonsense; start that cluster, or"
    ):
        _join_ray()


def test_an_address_where_nothing_listens_is_refused_before_ray_tries_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    monkeypatch.setattr(ray, "init", raising(AssertionError("Ray was asked")))
    with pytest.raises(ConfigError, match=rf"^RAY_ADDRESS=127.0.0.1:{port} cannot be joined: .*refused; start that"):
        _join_ray()


def test_a_machine_that_is_too_busy_for_ray_gives_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "init", raising(Exception("The current node timed out during startup. This could ...")))
    with pytest.raises(ConfigError, match=r"^Ray cannot be started on this machine: .*; try again when the machine is"):
        _join_ray()


@pytest.mark.usefixtures("handlers")
def test_a_start_forgets_the_notice_of_an_ended_server_and_a_failed_one_leaves_no_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def noted(name: str, error: Exception | None = None) -> Callable[..., None]:
        def call(*_: Any, **__: Any) -> None:
            calls.append(name)
            if error:
                raise error

        return call

    monkeypatch.setattr(app, "application", noted("build"))
    monkeypatch.setattr(command, "_join_ray", noted("join"))
    monkeypatch.setattr(draining, "forget", noted("forget"))
    monkeypatch.setattr(serve, "start", noted("start"))
    monkeypatch.setattr(serve, "run", noted("run", RuntimeError("Deploying failed.\nno such folder")))
    monkeypatch.setattr(serve, "shutdown", noted("shutdown"))
    with pytest.raises(ConfigError, match=r"^m does not start: no such folder$"):
        _serve(ServeConfig(model="m"), {}, "127.0.0.1", 8000)
    assert calls == ["build", "join", "forget", "start", "run", "shutdown"]


def test_ctrl_c_before_the_server_starts_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "check_free", raising(KeyboardInterrupt()))
    with pytest.raises(SystemExit) as ended:
        command.main(["--model", "m"])
    assert ended.value.code == 130
    shown = capsys.readouterr()
    assert (shown.out + shown.err).splitlines() == ["stopped before the server was up"]


def test_a_drain_of_no_seconds_still_lets_idle_replicas_say_that_they_are_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()

    def in_flight() -> int:
        """One replica, which reads the notice with its next look."""
        return int(time.monotonic() - began < draining.PERIOD_S)

    monkeypatch.setattr(draining, "forget", lambda: None)
    monkeypatch.setattr(draining, "_internal_kv_put", lambda *_: None)
    monkeypatch.setattr(draining, "_in_flight", in_flight)
    assert draining.drain(0.0) == 0


def raising(error: BaseException) -> Callable[..., None]:
    def call(*_: Any, **__: Any) -> None:
        raise error

    return call
