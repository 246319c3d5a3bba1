"""The command line of rayrank plan: what cannot be used is one sentence, and a plan is printed from a file."""

import runpy
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.measure.test_capacity_plan import CAPACITY


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["plan", *options])
    runpy.run_module("jobs.plan", run_name="__main__")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("", "Name an endpoint to measure with --measure URL, or the load to plan for with --rps."),
        ("--rps 40", "--rps needs --p95-ms and one number of --documents"),
        ("--rps 40 --p95-ms 200 --documents 10 25", "--rps needs --p95-ms and one number of --documents"),
        ("--rps 0 --p95-ms 200 --documents 25", "--rps 0 cannot be used: it must be a number above 0."),
        ("--rps nan --p95-ms 200 --documents 25", "--rps nan cannot be used: it must be a number above 0."),
        ("--rps inf --p95-ms 200 --documents 25", "--rps inf cannot be used: it must be a number above 0."),
        ("--rps 40 --p95-ms 200 --documents 25 --headroom 1", "--headroom 1 cannot be used"),
        ("--rps 40 --p95-ms 200 --documents 25 --file none.json", "--file none.json cannot be read"),
        ("--measure http://127.0.0.1:9 --file none/capacity.json", "there is no folder none"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    options: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        run(monkeypatch, *options.split())

    assert caught.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_plan_names_the_replicas_and_what_they_stand_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "capacity.json"
    CAPACITY.write(str(file))
    run(monkeypatch, *"--rps 40 --documents 25 --p95-ms 200 --file".split(), str(file))

    said = capsys.readouterr().out
    assert said.startswith("3 replicas of m, each with the GPU")
    assert "a replica carried 20 requests/s of 25 documents with a p95 of 190 ms" in said


def test_a_measurement_that_is_stopped_ends_without_a_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        command = [sys.executable, "-m", "rayrank.jobs.plan", "--measure", url, "--file", str(tmp_path / "c.json")]
        # Commands that a script starts in the background ignore Ctrl-C, and so do their children.
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
        )
        server.settimeout(60)
        # The command waits for an answer from here on.
        with server.accept()[0]:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]

    assert (process.returncode, said.strip()) == (130, "stopped; no measurement was written")
