"""Workers of the cluster that stages start are forks of a fork server, which is replaced if it is killed."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
import ray

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux only")


@ray.remote(num_cpus=0)
class Worker:
    def has_torch(self) -> bool:
        return "torch" in sys.modules

    def parent(self) -> int:
        return psutil.Process().ppid()


def forked_worker() -> tuple[ray.actor.ActorHandle, psutil.Process]:
    """Return a worker and its fork server; on a busy machine the first workers may start without the server."""
    for _ in range(30):
        worker = Worker.remote()
        parent = psutil.Process(ray.get(worker.parent.remote()))
        if "rayrank.cluster.fork_server" in parent.cmdline():
            return worker, parent
        time.sleep(2)
    raise TimeoutError


def test_a_worker_finds_torch_imported_and_a_killed_fork_server_is_replaced(ray_cluster: None) -> None:
    worker, server = forked_worker()
    assert ray.get(worker.has_torch.remote())
    assert server.ppid() == os.getpid()
    server.kill()
    server.wait()
    other, replacement = forked_worker()
    assert Path(replacement.parent().exe()).name == "raylet"
    assert ray.get(other.has_torch.remote())
    assert ray.get(worker.has_torch.remote())  # workers outlive the server that forked them
