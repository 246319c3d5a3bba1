"""A server that is stopped answers the requests in flight; a second server on the same port does not start."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.processes import kill_whole
from tests.serve.conftest import free_port, wait_until

COMMAND = [sys.executable, "-m", "serve.run"]
LONG = ["word " * 175] * 60


@contextmanager
def started(model: Path, port: int, sign: str, *settings: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Yield a server that has printed a line with `sign`, and the lines that it prints."""
    lines: list[str] = []
    process = subprocess.Popen(
        [*COMMAND, "--model", str(model), "--port", str(port), *settings],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    reader = threading.Thread(target=lambda stream: lines.extend(stream), args=(process.stdout,), daemon=True)
    reader.start()
    try:
        end = time.monotonic() + 240  # a busy machine starts Ray slowly
        while not any(sign in line for line in lines):
            assert process.poll() is None, "".join(lines)
            assert time.monotonic() < end, "".join(lines)
            time.sleep(0.1)
        yield process, lines
    finally:
        if process.poll() is None:
            kill_whole(process)
        reader.join(10)


def in_flight(metrics: str) -> float:
    lines = httpx.get(metrics, timeout=60).text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("rayrank_in_flight_requests "))


@pytest.mark.slow
def test_sigterm_lets_the_requests_in_flight_finish_and_refuses_others(model_folder: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/v1/rerank"
    with (
        started(model_folder, port, "(Ctrl-C stops", "batching.queued_pairs=1000000") as (process, lines),
        ThreadPoolExecutor(16) as pool,
    ):
        second = subprocess.run(
            [*COMMAND, "--model", str(model_folder), "--port", str(port)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        body = {"query": "where is the bogue", "documents": LONG, "return_documents": False}
        waiting = [pool.submit(httpx.post, url, json=body, timeout=120) for _ in range(16)]
        metrics = f"http://127.0.0.1:{port}/metrics"
        # The request for the figures is in flight, too.
        wait_until(lambda: in_flight(metrics) + sum(each.done() for each in waiting) > 16)
        process.send_signal(signal.SIGTERM)
        refused, end = None, time.monotonic() + 5
        while (refused is None or refused.status_code == 200) and time.monotonic() < end:
            refused = httpx.post(url, json={**body, "documents": ["short"]}, timeout=60)
        figures = httpx.get(metrics, timeout=60).text
        num_waiting = sum(not each.done() for each in waiting)
        answers = [each.result() for each in waiting]
        status = process.wait(60)

    assert second.returncode == 2
    assert f"port={port} is taken: another server listens on 127.0.0.1:{port}" in second.stderr + second.stdout
    assert [answer.status_code for answer in answers] == [200] * 16
    assert all(len(answer.json()["results"]) == len(LONG) for answer in answers)
    # The refused request came while others were still in flight: otherwise this test shows nothing.
    assert num_waiting > 0
    assert refused is not None
    assert refused.status_code == 503
    assert refused.headers["Retry-After"] == "5"
    assert 'rayrank_requests_total{model="",route="stopping",status="503"} 1.0' in figures
    assert status == 0
    printed = "".join(lines)
    assert "all requests were answered" in printed
    assert not any(sign in printed for sign in ("Traceback", "*** SIG", "Stack trace", "C  [")), printed


@pytest.mark.slow
def test_sigterm_ends_a_server_whose_replica_cannot_be_scheduled(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seconds after which Serve says that a replica waits for its resources.
    monkeypatch.setenv("RAY_SERVE_SLOW_STARTUP_WARNING_S", "1")
    settings = "resources.cpus=1000", "scaling.drain_s=1"
    with started(model_folder, free_port(), "to be scheduled", *settings) as (process, lines):
        process.send_signal(signal.SIGTERM)
        status = process.wait(30)

    assert status == 0
    assert "Traceback" not in "".join(lines)
