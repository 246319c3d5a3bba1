"""Runs jobs as forks of a process that has already imported their modules, which saves up to ten seconds per job.

Run as a script, this file is that process: it reads one job per line and answers each with its exit code.
"""

import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 600


class Forks:
    """Runs commands of the form `python -m MODULE ...` in forks of one process."""

    def __init__(self, *imported: str) -> None:
        self._imported = imported

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; libraries that read the environment at import do not see this one."""
        assert command[:2] == [sys.executable, "-m"]
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        with tempfile.TemporaryDirectory(prefix="job") as folder:
            files = [Path(folder, name) for name in ("stdout", "stderr")]
            job = {"argv": command[2:], "environment": dict(environment), "files": [str(file) for file in files]}
            self._parent.stdin.write(json.dumps(job) + "\n")
            self._parent.stdin.flush()
            code = int(self._parent.stdout.readline())
            stdout, stderr = (file.read_text(encoding="utf-8") for file in files)
        return subprocess.CompletedProcess(command, code, stdout, stderr)

    @cached_property
    def _parent(self) -> subprocess.Popen[str]:
        # It ends when its standard input is closed, at the latest when the tests end.
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        # On some machines pyarrow's allocator would start a thread of its own.
        one_thread["JE_ARROW_MALLOC_CONF"] = "background_thread:false"
        path = os.pathsep.join([str(ROOT / "platform"), str(ROOT)])
        return subprocess.Popen(
            [sys.executable, __file__, *self._imported],
            cwd=ROOT,
            env={**os.environ, **one_thread, "PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )


def _next_job() -> dict[str, Any]:
    """Fork for each line of standard input; only the forks return, each with its job."""
    for line in sys.stdin:
        if not (child := os.fork()):
            return dict(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()
    sys.exit()


def _become(job: dict[str, Any]) -> None:
    signal.alarm(TIMEOUT_S)
    for number, file in enumerate([os.devnull, *job["files"]]):
        os.dup2(os.open(file, os.O_RDWR | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(job["environment"])
    # The native part of Ray read the environment when it was imported.
    import_module("ray._raylet").Config.initialize("")
    sys.argv = job["argv"]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        import_module(name)
    # A fork has one thread: a lock that another thread holds would never be released.
    assert len(list(Path("/proc/self/task").iterdir())) == 1
    gc.freeze()  # Else each fork would look through all imported objects at its end.
    _become(_next_job())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
