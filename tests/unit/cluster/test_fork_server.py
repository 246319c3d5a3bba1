"""Scripts run by a fork server: with their own streams, environment and folder, and without it if it cannot be had."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rayrank.cluster import fork_server
from rayrank.cluster.fork_server import runtime_env

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")

# Asks for a fork like a Ray worker does, but of a server that imports only one module of the standard library.
ASKING = """
import os, sys
from rayrank.cluster import fork_server
fork_server.START_SECONDS = float(os.environ.pop("PATIENCE"))
fork_server.GPU_DEVICES = (os.environ.get("GPU_DEVICES", "/dev/nvidia"),)
if not fork_server.forked(sys.argv[1:], [os.environ.get("MODULE", "decimal")]):
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""

REPORTING = """
import os, sys
print(__name__, sys.argv[1:], os.environ.get("RAY_GREETING"), os.getcwd(), "decimal" in sys.modules, sys.path[0])
print(os.getppid(), os.getpid(), os.getpgid(0))
sys.stdout.flush()
with open("runs", "a") as runs:
    print(os.getpid(), file=runs)
print("the end", file=sys.stderr)
"""


@pytest.fixture
def raylet() -> Iterator[subprocess.Popen[bytes]]:
    """A process that a fork server takes for its Ray node's."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def ask(
    raylet: subprocess.Popen[bytes], script: Path, *arguments: str, patience: float = 60, **variables: str
) -> list[str]:
    """Run a script through the fork server; return the lines of its output."""
    environment = {**os.environ, "RAY_RAYLET_PID": str(raylet.pid), "PATIENCE": str(patience), **variables}
    environment.pop(fork_server._OWNER, None)  # set if another test of this process has started Ray
    command = [sys.executable, "-c", ASKING, str(script), *arguments]
    output = script.with_suffix(".out")
    with output.open("w") as stream:
        # The first process that asks becomes the server, so it is not waited for.
        subprocess.Popen(command, env=environment, cwd=script.parent, stdout=stream, stderr=stream)
    for _ in range(600):
        if (text := output.read_text()).endswith("the end\n"):
            return text.splitlines()
        time.sleep(0.05)
    raise TimeoutError(text)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "worker.py"
    path.write_text(REPORTING)
    return path


def server_of(lines: list[str]) -> int:
    return int(lines[1].split()[0])


def has_ended(process: int) -> bool:
    for _ in range(100):
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(process, 0)
            if "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text():
                time.sleep(0.1)
                continue
        return True
    return False


def test_a_script_finds_what_it_would_find_without_the_server(raylet: subprocess.Popen[bytes], script: Path) -> None:
    found, processes, error = ask(raylet, script, "one", "two words", RAY_GREETING="hello")
    folder = script.parent
    assert found == f"__main__ ['one', 'two words'] hello {folder} True {folder}"
    _, process, group = processes.split()
    assert process == group  # signals to the group of the process that asked do not reach the fork
    assert error == "the end"


def test_scripts_of_one_node_share_a_server_and_those_of_another_do_not(
    raylet: subprocess.Popen[bytes], script: Path
) -> None:
    first = server_of(ask(raylet, script))
    assert server_of(ask(raylet, script, RAY_JOB_ID="another")) == first
    assert server_of(ask(raylet, script, PYTHONPATH=f"platform:{os.environ.get('PYTHONPATH', '')}")) != first
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            assert server_of(ask(other, script)) != first
        finally:
            other.kill()


def test_the_server_ends_with_its_node(raylet: subprocess.Popen[bytes], script: Path) -> None:
    server = server_of(ask(raylet, script))
    raylet.kill()
    raylet.wait()
    assert has_ended(server)


def test_scripts_that_start_at_once_share_a_server(raylet: subprocess.Popen[bytes], tmp_path: Path) -> None:
    scripts = [tmp_path / f"worker{number}.py" for number in range(4)]
    for path in scripts:
        path.write_text(REPORTING)
    with ThreadPoolExecutor() as pool:
        answers = list(pool.map(lambda path: ask(raylet, path), scripts))
    assert len({server_of(lines) for lines in answers}) == 1


def test_an_edited_module_of_ours_gets_a_new_server(raylet: subprocess.Popen[bytes], script: Path) -> None:
    first = server_of(ask(raylet, script))
    module = Path(fork_server.__file__)
    before = module.stat()
    module.touch()
    try:
        assert server_of(ask(raylet, script)) != first
    finally:
        os.utime(module, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_script_that_fails_says_why(raylet: subprocess.Popen[bytes], script: Path) -> None:
    script.write_text("import atexit, sys\natexit.register(print, 'the end', file=sys.stderr)\n1 / 0\n")
    lines = ask(raylet, script)
    assert lines[-2:] == ["ZeroDivisionError: division by zero", "the end"]


def test_a_server_that_cannot_import_is_done_without(raylet: subprocess.Popen[bytes], script: Path) -> None:
    assert " False " in ask(raylet, script, MODULE="no_such_module", patience=2)[0]


def test_the_fork_server_imports_neither_ray_nor_scikit_learn() -> None:
    code = (
        "import sys; [__import__(each) for each in sys.argv[1:]]; print({'ray', 'sklearn', 'torch'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code, *fork_server.PRELOADED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "{'torch'}\n"


def test_a_killed_server_is_replaced(raylet: subprocess.Popen[bytes], script: Path) -> None:
    killed = server_of(ask(raylet, script))
    os.kill(killed, signal.SIGKILL)
    assert has_ended(killed)
    lines = ask(raylet, script)
    assert server_of(lines) != killed
    assert " True " in lines[0]


def test_without_an_answer_the_script_runs_without_the_server_and_never_again(
    raylet: subprocess.Popen[bytes], script: Path
) -> None:
    server = server_of(ask(raylet, script))
    os.kill(server, signal.SIGSTOP)
    try:
        lines = ask(raylet, script, patience=1)
    finally:
        os.kill(server, signal.SIGCONT)
    assert " False " in lines[0]
    assert server_of(ask(raylet, script)) == server
    time.sleep(0.5)
    assert len((script.parent / "runs").read_text().splitlines()) == 3


def test_with_an_option_of_python_before_the_script_there_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_RAYLET_PID", str(os.getpid()))
    assert not fork_server.forked(["-s", "worker.py"], [])


def test_the_python_of_a_ray_node_is_found_in_its_command_line(raylet: subprocess.Popen[bytes]) -> None:
    def python_of(node: int) -> str:
        environment = {**os.environ, "RAY_RAYLET_PID": str(node)}
        command = ["bash", "-c", f"echo {fork_server._PYTHON}"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    node = ["bash", "-c", "sleep 600; :", "x", "--python_worker_command=/opt/ray/bin/python setup.py --a=b"]
    with subprocess.Popen(node, start_new_session=True) as process:
        try:
            assert python_of(process.pid) == "/opt/ray/bin/python"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert python_of(raylet.pid).endswith("python3")


def test_without_a_ray_node_there_is_no_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)
    assert not fork_server.forked(["worker.py"], [])


def test_forks_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYRANK_FORK_WORKERS", "0")
    assert runtime_env() == {}


def test_a_job_that_brings_its_own_python_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAYRANK_FORK_WORKERS", raising=False)
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert runtime_env()["py_executable"].endswith(" -m rayrank.cluster.fork_server")
    job = '{"runtime_env": {"env_vars": {"PYTHONPATH": "platform"}}}'
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", job)
    assert runtime_env() != {}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", job.replace("env_vars", "pip"))
    assert runtime_env() == {}


def test_a_server_whose_imports_have_opened_a_gpu_forks_nothing(raylet: subprocess.Popen[bytes], script: Path) -> None:
    (script.parent / "opens_a_device.py").write_text("import decimal; device = open('/dev/zero')")

    unforked = ask(raylet, script, MODULE="opens_a_device", GPU_DEVICES="/dev/zero")
    forked = ask(raylet, script, MODULE="opens_a_device", GPU_DEVICES="/dev/nvidia")

    # A fork finds decimal imported.
    assert [found[0].split()[-2] for found in (unforked, forked)] == ["False", "True"]


STARTING_EARLY = """
import os, subprocess, sys, time
from rayrank.cluster import fork_server
fork_server.start_early()
raylet = subprocess.Popen(["sleep", "600"])
os.environ.update(RAY_RAYLET_PID=str(raylet.pid), SPT_NOENV="1", RAY_JOB_ID="01000000")
code = "from rayrank.cluster import fork_server; import sys; print(fork_server.forked(sys.argv[1:], []), flush=True)"
subprocess.run([sys.executable, "-c", code, sys.argv[1]])
for _ in range(600):
    if os.path.exists("parent"):
        break
    time.sleep(0.05)
raylet.kill()
"""


def test_a_server_that_a_job_starts_before_ray_serves_the_workers_and_ends_with_the_job(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text("import os, sys\nopen('now', 'w').write(f\"{os.getppid()} {'torch' in sys.modules}\")\n"
                      "os.rename('now', 'parent')\n")  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in (fork_server._OWNER, "RAY_ADDRESS")}

    job = subprocess.run(
        [sys.executable, "-c", STARTING_EARLY, str(script)], cwd=tmp_path, env=environment, capture_output=True
    )

    assert job.stdout.split() == [b"True"]
    server, has_torch = (tmp_path / "parent").read_text().split()
    assert has_torch == "True"
    assert has_ended(int(server))


def test_the_owner_is_the_ray_node_once_the_job_that_started_early_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    monkeypatch.setenv("RAY_RAYLET_PID", str(os.getpid()))
    monkeypatch.setenv(fork_server._OWNER, str(ended.pid))
    assert fork_server._owner() == os.getpid()
    monkeypatch.setenv(fork_server._OWNER, str(os.getppid()))
    assert fork_server._owner() == os.getppid()
