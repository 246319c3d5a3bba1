"""A Ray cluster of several nodes on this machine, which can be killed one by one, and the jobs that join it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from ray.cluster_utils import Cluster

from benchmarks.peer_server import free_port
from rayrank.core.artifacts import MANIFEST

SIZE: dict[str, Any] = {"object_store_memory": 10**8}
TRAINER, DATA = "RayTrainWorker", "MapWorker"
"""What the names of the processes contain that train, and that Ray Data gives partitions to."""


class LocalNodes:
    """A head without cores, where the drivers run, and nodes of one core each, where everything else runs."""

    def __init__(self, workers: int, folder: Path) -> None:
        """Give all processes of the cluster, and the drivers, a folder for temporary files of their own."""
        self._num_workers, self._folder = workers, folder
        self._folder.mkdir(parents=True, exist_ok=True)
        # Ray itself stays in /tmp: the names of its sockets must be short.
        os.environ |= {"TMPDIR": str(folder), "RAY_TMPDIR": "/tmp"}
        self._cluster: Any = None

    def start(self) -> None:
        """Start all nodes; with a dashboard, which Ray Train asks whether a killed training has left anything."""
        self._cluster = Cluster()
        self._cluster.add_node(num_cpus=0, include_dashboard=True, dashboard_port=free_port(), **SIZE)
        for _ in range(self._num_workers):
            self.add()

    def add(self) -> None:
        """Start one more node."""
        self._cluster.add_node(num_cpus=1, **SIZE)

    @property
    def address(self) -> str:
        """The address that a driver joins."""
        return str(self._cluster.address)

    def workers(self) -> list[Any]:
        """Return the nodes but the head, in the order of their names."""
        return sorted(self._cluster.worker_nodes, key=lambda node: str(node.raylet_socket_name))

    def node_with(self, name: str) -> Any:
        """Return the first node with a worker process whose name contains this text, or None."""
        return next((node for node in self.workers() if any(name in title(one) for one in of_node(node))), None)

    def kill(self, node: Any) -> None:
        """Kill a node at once, with all its processes, as if its machine was switched off."""
        doomed = of_node(node)
        raylet = node.all_processes["raylet"][0].process
        for process in (psutil.Process(raylet.pid), *doomed):
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """Kill the head, and then the nodes, which are of no use without it."""
        self.stop()

    def stop(self) -> None:
        """Kill all nodes, the head first."""
        if self._cluster is None:
            return
        cluster, self._cluster = self._cluster, None
        nodes = cluster.list_all_nodes()
        doomed = [process for node in nodes for process in of_node(node)]
        for node in nodes:
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
        for process in doomed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(doomed, timeout=10)


def of_node(node: Any) -> list[psutil.Process]:
    """Return the worker processes of a node, and the processes that these have started."""
    raylets = [str(each.process.pid) for each in node.all_processes.get("raylet", [])]
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("RAY_RAYLET_PID") in raylets:
                found.append(process)
    return found


def title(process: psutil.Process) -> str:
    """Return the command line of a process, which Ray's workers replace by their name; empty if it has ended."""
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


class Driver:
    """A job in a process of its own, which joins the cluster."""

    def __init__(self, command: list[str], nodes: LocalNodes, log: Path, **environment: str) -> None:
        self._log = log
        joined = {**os.environ, "RAY_ADDRESS": nodes.address, **environment}
        with log.open("ab") as stream:
            # A session of its own: Ctrl-C reaches only the process that started it, which then ends it.
            self.process = subprocess.Popen(
                [sys.executable, "-m", *command], env=joined, stdout=stream, stderr=stream, start_new_session=True
            )

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None

    def kill(self) -> None:
        """Kill it, with what it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def said(self) -> str:
        """Return the end of what it has printed."""
        return self._log.read_text(errors="replace")[-3000:]


@contextmanager
def running(driver: Driver) -> Iterator[Driver]:
    """Kill a driver that still runs at the end of the block, for example after Ctrl-C."""
    try:
        yield driver
    finally:
        driver.kill()


class Commits:
    """Watches the manifests of a storage: which artifacts are finished, and which have been finished twice."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._seen: dict[Path, tuple[int, int]] = {}
        self.again: list[Path] = []

    def look(self) -> set[Path]:
        """Look at all manifests, and return the folders of the artifacts that are finished now."""
        found: dict[Path, tuple[int, int]] = {}
        for file in self._storage.glob(f"*/*/{MANIFEST}"):
            with suppress(FileNotFoundError):
                about = file.stat()
                found[file.parent] = about.st_ino, about.st_mtime_ns
        self.again += [place for place, written in found.items() if self._seen.get(place, written) != written]
        self._seen |= found
        return set(found)


def wait_until(condition: Callable[[], bool], driver: Driver, seconds: float, look: Callable[[], object]) -> bool:
    """Wait until a condition holds; return False if the driver ends before. `look` is called all the time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        look()
        if condition():
            return True
        if not driver.runs:
            return False
        time.sleep(0.02)
    raise TimeoutError(f"The driver has not ended after {seconds:.0f} s: {driver.said()}")
