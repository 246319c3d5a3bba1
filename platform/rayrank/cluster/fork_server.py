"""Ray workers that start in less than a second: forks of a process that has imported torch and transformers already.

Importing them takes nine seconds of a core, and a pipeline starts a dozen workers. With `runtime_env` Ray starts each
worker with `python -m rayrank.cluster.fork_server`. That command asks the fork server of its node for a fork that runs
the worker, and becomes the server if there is none. If that fails, it runs the worker itself, as without this module.
"""

import contextlib
import gc
import hashlib
import importlib
import json
import os
import runpy
import shlex
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PRELOADED = ("rayrank.runs.scoring", "rayrank.training.phases.listwise")
"""Modules that the fork server imports; they import torch and transformers, but not Ray.

Ray reads some settings of a worker, such as the id of its job, from the environment when it is imported.
"""

START_SECONDS = 60.0
"""A worker that has waited this long for the fork server starts without it."""

IDLE_SECONDS = 300.0
"""A fork server ends after this time without a new worker, because it occupies about half a gigabyte."""

_OF_A_WORKER = ("RAY_", "OMP_NUM_THREADS", "PWD", "OLDPWD", "SHLVL", "_")
"""Beginnings of environment variables that may differ between the workers of one fork server."""

_OTHER_PYTHON = ("pip", "uv", "conda", "container", "image_uri", "py_executable")
"""Fields of a job's runtime environment that choose the Python of its workers."""

_SIZE, _READY = struct.Struct("!I"), b"1"


def runtime_env() -> dict[str, Any]:
    """Return the runtime environment with which Ray starts workers by fork; empty where it cannot or must not."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}").get("runtime_env") or {}
    is_off = os.environ.get("RAYRANK_FORK_WORKERS") == "0"
    if is_off or sys.platform != "linux" or any(job.get(field) for field in _OTHER_PYTHON):
        return {}
    # Ray passes this to a shell. Another node may keep its Python elsewhere.
    python = f'"$(command -v {shlex.quote(sys.executable)} || command -v python3)"'
    return {"py_executable": f"{python} -m {__spec__.name}"}


def main(arguments: Sequence[str]) -> None:
    """Run a Python script, given with its arguments, in a fork of the fork server, or in this process."""
    if not forked(arguments):
        os.execv(sys.executable, [sys.executable, *arguments])


def forked(arguments: Sequence[str], modules: Sequence[str] = PRELOADED) -> bool:
    """Have the fork server run a script with this process's environment and streams; return whether it does.

    Without a server this process becomes it, so that the server is a child of Ray's node like any worker, and a fork of
    this process asks and returns.
    """
    # Forks of a process that has used CUDA cannot use it, and some module might use it while it is imported.
    if Path("/dev/nvidiactl").exists() or "RAY_RAYLET_PID" not in os.environ:
        return False
    address = _address()
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)  # fails if there is a server
        if os.fork():
            serve(listener, modules)
            os._exit(0)
    request = json.dumps([list(arguments), dict(os.environ), str(Path.cwd())]).encode()
    try:
        with _connection(address) as server:
            socket.send_fds(server, [_SIZE.pack(len(request))], [0, 1, 2])
            server.sendall(request)
            # The server forks only after this process has confirmed that it still waits: no worker may run twice.
            is_ready = server.recv(1) == _READY
            if is_ready:
                server.sendall(_READY)
            return is_ready
    except OSError:
        return False


def _address() -> str:
    """Return the name of the server's socket, which differs for other code, other settings and other Ray nodes."""
    kept = sorted(item for item in os.environ.items() if not item[0].startswith(_OF_A_WORKER))
    same = [os.environ["RAY_RAYLET_PID"], sys.executable, str(Path.cwd()), kept]
    return "\0rayrank-fork-server-" + hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _connection(address: str) -> Iterator[socket.socket]:
    """Connect to the fork server, and wait for it while it imports."""
    until, parent = time.monotonic() + START_SECONDS, os.getppid()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(START_SECONDS)
        while True:
            try:
                connection.connect(address)
                break
            except ConnectionRefusedError:
                # The parent is the server in the fork that asks first, and otherwise Ray's node.
                if time.monotonic() > until or os.getppid() != parent:
                    raise
                time.sleep(0.05)
        _check_user(connection)
        yield connection


def _check_user(connection: socket.socket) -> None:
    """Refuse another user's process: any process on a machine may use a socket without a file."""
    credentials = struct.Struct("3i")
    _, user, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    if user != os.getuid():
        raise PermissionError(f"The process at the other end of the socket belongs to user {user}.")


def serve(listener: socket.socket, modules: Sequence[str]) -> None:
    """Fork a worker for each request until the Ray node has ended or no request has come for a while."""
    raylet = int(os.environ["RAY_RAYLET_PID"])
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    _import(modules)
    listener.listen(256)
    listener.settimeout(1.0)
    # The kernel removes forks that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    last = time.monotonic()
    while _is_alive(raylet) and time.monotonic() - last < IDLE_SECONDS:
        with contextlib.suppress(OSError):  # no request within a second, or one that was given up
            _answer(listener)
            last = time.monotonic()


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        # A module that cannot be imported here fails in the worker, where Ray reports it.
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    # Forks share the memory of what is imported until they write to it; the garbage collector would write to it.
    gc.collect()
    gc.freeze()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def _answer(listener: socket.socket) -> None:
    """Accept one request and fork; the fork never returns."""
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(5.0)
        _check_user(connection)
        head, streams, _, _ = socket.recv_fds(connection, _SIZE.size, 3)
        try:
            arguments, environment, folder = json.loads(_received(connection, *_SIZE.unpack(head)))
            connection.sendall(_READY)
            if connection.recv(1) == _READY and os.fork() == 0:
                listener.close()
                connection.close()
                _become(arguments, environment, folder, streams)
        finally:
            for stream in streams:
                os.close(stream)


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionResetError
        found += part
    return found


def _become(arguments: list[str], environment: dict[str, str], folder: str, streams: list[int]) -> None:
    """Turn this fork into the process that `python SCRIPT ARGUMENT...` would be, and end with it."""
    import numpy as np

    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    # Forks would all draw the same numbers; Python's own generator is seeded again by fork.
    np.random.seed()
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).parent)
    code = 1
    try:
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _end(code)


def _end(code: int) -> None:
    """End like an interpreter, with the functions registered by atexit, but without returning to the server's loop."""
    import atexit

    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
