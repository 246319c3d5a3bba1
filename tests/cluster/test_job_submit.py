"""The README's way onto a cluster: a head with token authentication, and `ray job submit`."""

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PHASES = ("pointwise", "listwise")
RAY = str(Path(sys.executable).with_name("ray"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Draining takes half a minute, and nobody is there to be moved to.
    return {**os.environ, "PATH": path, "RAY_AUTH_MODE": "token", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}


@pytest.fixture(scope="module")
def head(environment: dict[str, str]) -> Iterator[str]:
    subprocess.run([RAY, "get-auth-token", "--generate"], env=environment, check=True, capture_output=True)
    port = free_port()
    # Unix sockets have short names only, so not pytest's long folder.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        command = [RAY, "start", "--head", "--block", "--num-cpus=2", f"--port={free_port()}", f"--temp-dir={folder}"]
        # Another Ray on this machine has the usual ports, the one of the agent that starts jobs among them.
        command += [f"--dashboard-port={port}", f"--dashboard-agent-listen-port={free_port()}"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        try:
            yield _answering(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(timeout=60)


def _answering(address: str) -> str:
    """Return the address once somebody answers there; without a token the answer is that one is missing."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{address}/api/jobs/", timeout=5)
        except urllib.error.HTTPError as error:
            if error.code == 401:
                return address
            raise
        except OSError:
            time.sleep(0.5)
        else:
            pytest.fail("the head let a client without a token in")
    pytest.fail("the head did not start")


def readme_command() -> list[str]:
    lines = (ROOT / "README.md").read_text().splitlines()
    return shlex.split(next(line for line in lines if line.startswith("ray job submit")))


def test_the_readmes_submit_command_runs_the_pipeline_under_token_authentication(
    head: str, environment: dict[str, str], tmp_path: Path
) -> None:
    command = readme_command()
    command[command.index("--address") + 1] = head
    command[command.index("--storage") + 1] = str(tmp_path / "storage")
    less = ["dataset.demo.subjects=40", "candidates.depth=10", "encoder.layers=1", "training.dev_queries=5"]
    less += ["pretrain.enabled=false", *(f"{phase}.max_steps=2" for phase in PHASES)]
    command += [part for setting in less for part in ("--set", setting)]
    command += ["--json", str(tmp_path / "summary.json")]

    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, capture_output=True)

    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    stages = [stage["stage"] for stage in summary["stages"]]
    assert stages[:3] == ["corpus", "index", "run:bm25"]
    assert set(PHASES) < set(stages)
    runs = [stage["evaluation"]["run"] for stage in summary["stages"] if "evaluation" in stage]
    assert runs == ["bm25", "pointwise", "drbert", "fused"]
    assert "MRR@10" in done.stdout


def test_a_user_error_in_a_submitted_job_is_one_sentence_and_fails_the_job(
    head: str, environment: dict[str, str], tmp_path: Path
) -> None:
    command = readme_command()
    command[command.index("--address") + 1] = head
    command[command.index("--storage") + 1] = str(tmp_path / "storage")

    done = subprocess.run(
        [*command, "--set", "candidates.depht=3"], cwd=ROOT, env=environment, text=True, capture_output=True
    )

    assert done.returncode != 0
    assert "error: The setting candidates.depht does not exist: did you mean candidates.depth?" in done.stdout
    assert "Traceback" not in done.stdout
