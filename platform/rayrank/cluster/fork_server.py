"""Ray workers that start in about a second: forks of a process that has imported torch and transformers already.

Importing them takes nine seconds of a core, and a pipeline starts a dozen workers. `start_ray` tells Ray to start each
worker with `python -m rayrank.cluster.fork_server`. That command asks the fork server of its node for a fork that runs
the worker, and becomes the server if there is none. If that fails, it runs the worker itself, as without this module.
A job that starts Ray on this machine starts the server first, so that both become ready at the same time.
"""

import atexit
import contextlib
import gc
import hashlib
import importlib
import json
import os
import runpy
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

PRELOADED = ("rayrank.runs.scoring", "rayrank.training.phases.listwise")
"""Modules that the fork server imports; they import torch and transformers, but not Ray.

Ray reads some settings of a worker, such as the id of its job, from the environment when it is imported; a fork would
have those of the first worker.
"""

START_SECONDS = 30.0
"""A worker that has waited this long for the fork server starts without it; Ray gives up a worker after 60 s."""

IDLE_SECONDS = 300.0
"""A fork server without workers ends after this time, because it occupies about half a gigabyte."""

GPU_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dxg")
"""Prefixes of the paths that a process opens in order to use a GPU: NVIDIA's, AMD's, and any under WSL."""

_OWNER = "RAYRANK_FORK_SERVER_OWNER"
"""The environment variable with the process that a fork server serves: a job that starts Ray, else the Ray node."""

_OF_A_WORKER = ("RAY_", "SPT_NOENV", "PWD", "OLDPWD", "SHLVL", "_")
"""Prefixes of the environment variables that may differ between the workers of one fork server."""

_OTHER_PYTHON = ("pip", "uv", "conda", "container", "image_uri", "py_executable")
"""Fields of a job's runtime environment that choose the Python of its workers."""

# Finds the Python of the Ray node that starts the worker, which may be installed elsewhere than that of the driver.
_PYTHON = (
    r"""$(tr '\0' '\n' < /proc/$RAY_RAYLET_PID/cmdline | sed -n 's/^--python_worker_command=\([^ ]*\) .*/\1/p' """
    "| grep . || command -v python3)"
)
_SERVE = "--serve"
_SIZE, _READY = struct.Struct("!I"), b"1"


def runtime_env() -> dict[str, Any]:
    """Return the runtime environment with which Ray starts workers by fork; empty where it cannot or must not."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}").get("runtime_env") or {}
    is_off = os.environ.get("RAYRANK_FORK_WORKERS") == "0" or " " in sys.executable
    if is_off or sys.platform != "linux" or any(job.get(field) for field in _OTHER_PYTHON):
        return {}
    return {"py_executable": f'"{_PYTHON}" -m {__spec__.name}'}  # Ray passes it to a shell


def start_early() -> None:
    """Start the fork server of the Ray that this process is going to start."""
    if os.environ.get(_OWNER) == str(os.getpid()) or not runtime_env():
        return
    os.environ[_OWNER] = str(os.getpid())
    # The socket is bound here, so that no worker can become a server before this one has started.
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as listener:
        listener.bind(_address())
        listener.set_inheritable(True)
        command = [sys.executable, "-m", __spec__.name, _SERVE, str(listener.fileno())]
        os.posix_spawn(sys.executable, command, os.environ, setsid=True)


def main(arguments: Sequence[str]) -> None:
    """Run a Python script, given with its arguments, in a fork of the fork server, or in this process.

    With `--serve NUMBER` this process becomes the server, and NUMBER is the descriptor of its socket.
    """
    if arguments[0] == _SERVE:
        with socket.socket(fileno=int(arguments[1])) as listener:
            serve(listener, PRELOADED)
    elif not forked(arguments):
        os.execv(sys.executable, [sys.executable, *arguments])


def forked(arguments: Sequence[str], modules: Sequence[str] = PRELOADED) -> bool:
    """Have the fork server run a script with this process's environment and streams; return whether it does.

    Without a server this process becomes it, so that the server is a child of Ray's node like any worker, and a fork of
    this process asks and returns.
    """
    # An argument that begins with - is an option of Python, such as -s: a fork has those of its server.
    if "RAY_RAYLET_PID" not in os.environ or arguments[0].startswith("-"):
        return False
    try:
        request = json.dumps([list(arguments), dict(os.environ), str(Path.cwd())]).encode()
        with _connection(_address(), modules) as server:
            socket.send_fds(server, [_SIZE.pack(len(request))], [0, 1, 2])
            server.sendall(request)
            # The fork runs the script only after this process has confirmed that it still waits: no worker may run
            # twice.
            is_ready = server.recv(1) == _READY
            if is_ready:
                server.sendall(_READY)
            return is_ready
    except OSError:
        return False


def _address() -> str:
    """Return the name of the server's socket: a digest of its owner, the Python, the code, the folder and the
    environment."""
    package = Path(__file__).parents[1]
    code = max(path.stat().st_mtime_ns for path in package.rglob("*.py"))
    # The network, and with it the socket, may be shared by containers in which processes have the same numbers.
    containers = [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("pid", "mnt")]
    kept = sorted(item for item in os.environ.items() if not item[0].startswith(_OF_A_WORKER))
    same = [_owner(), containers, sys.executable, str(package), code, str(Path.cwd()), kept]
    return "\0rayrank-fork-server-" + hashlib.sha256(json.dumps(same).encode()).hexdigest()[:32]


def _owner() -> int:
    owner = int(os.environ.get(_OWNER, 0))
    # A process may have inherited the variable from a job that has ended.
    return owner if owner and _is_alive(owner) else int(os.environ["RAY_RAYLET_PID"])


@contextlib.contextmanager
def _connection(address: str, modules: Sequence[str]) -> Iterator[socket.socket]:
    """Connect to the fork server, start it if there is none, and wait for it while it imports."""
    until = time.monotonic() + START_SECONDS
    with socket.socket(socket.AF_UNIX) as connection:
        while True:
            try:
                connection.connect(address)
                break
            except ConnectionRefusedError:  # there is no server, or it is still importing
                if time.monotonic() > until:
                    raise
                _become_server(address, modules)
                time.sleep(0.05)
        connection.settimeout(max(1.0, until - time.monotonic()))
        _check_user(connection)
        yield connection


def _check_user(connection: socket.socket) -> None:
    """Refuse another user's process: this kind of socket has no file permissions, so any user could connect."""
    credentials = struct.Struct("3i")
    _, user, _ = credentials.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, credentials.size))
    if user != os.getuid():
        raise PermissionError(f"The process at the other end of the socket belongs to user {user}.")


def _become_server(address: str, modules: Sequence[str]) -> None:
    """Turn this process into the server, unless there is one; what called this function goes on in a fork."""
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError:
            return
        if os.fork() == 0:
            os.setsid()  # Ray may kill the process group of a worker, and the server must not be in it
            return
        try:
            serve(listener, modules)
        finally:
            os._exit(0)


def serve(listener: socket.socket, modules: Sequence[str]) -> None:
    """Fork a worker for each request until its owner has ended, or there have been no workers for a while."""
    owner = _owner()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    _import(modules)
    # Forks of a process that has used a GPU cannot use it. If importing has opened one, every request is refused, and
    # workers start without the server.
    can_fork = not _has_opened_gpu()
    listener.listen(256)
    listener.settimeout(1.0)
    last = time.monotonic()
    while _is_alive(owner) and time.monotonic() - last < IDLE_SECONDS:
        with contextlib.suppress(OSError):  # no request within a second, or no fork: the worker starts without it
            connection, _ = listener.accept()
            with connection:
                if can_fork and os.fork() == 0:
                    listener.close()
                    _run_worker(connection)
        if _has_workers():
            last = time.monotonic()


def _import(modules: Sequence[str]) -> None:
    # On some machines pyarrow's allocator would start a thread, and a fork has only the thread that forks.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    for module in modules:
        importlib.import_module(module)
    # Forks share the memory of what is imported until they write to it; the garbage collector would write to it.
    gc.collect()
    gc.freeze()


def _has_opened_gpu() -> bool:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            if str(link.readlink()).startswith(GPU_DEVICES):
                return True
    return False


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except OSError:
        return False
    return True


def _has_workers() -> bool:
    """Return whether forks are alive, after removing those that have ended, which would stay as zombies."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _run_worker(connection: socket.socket) -> NoReturn:
    """Be the process that `python SCRIPT ARGUMENT...` would be, with the streams and environment of the one that asks.

    Ends the process, whatever happens.
    """
    code = 1
    try:
        arguments = _read_request(connection)
        runpy.run_path(arguments[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        # As an interpreter ends, which would return to the server's loop first.
        with contextlib.suppress(Exception):
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _read_request(connection: socket.socket) -> list[str]:
    """Take over the streams, environment and folder of the process that asks; return the script and its arguments."""
    connection.settimeout(5.0)
    _check_user(connection)
    head, streams, _, _ = socket.recv_fds(connection, _SIZE.size, 3)
    arguments, environment, folder = json.loads(_received(connection, *_SIZE.unpack(head)))
    connection.sendall(_READY)
    if connection.recv(1) != _READY:
        sys.exit(1)
    connection.close()
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    _seed_numpy()
    sys.argv = arguments
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(arguments[0]).parent)
    return list(arguments)


def _seed_numpy() -> None:
    """Seed NumPy's generator, with which forks would all draw the same numbers; Python's own is seeded by fork."""
    import numpy as np

    np.random.seed()


def _received(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = connection.recv(size - len(found))
        if not part:
            raise ConnectionResetError
        found += part
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
