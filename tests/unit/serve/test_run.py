"""A server is stopped by a signal at any time, and a wrong RAY_ADDRESS gives one sentence."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayrank.core.errors import ConfigError
from rayrank.serve.config import read
from rayrank.serve.run import SIGNALS, Stopped, _join_ray, _settings, parser


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
    with pytest.raises(ConfigError, match=r"^RAY_ADDRESS=nonsense cannot be used: .*nonsense; name a running Ray, or"):
        _join_ray()
