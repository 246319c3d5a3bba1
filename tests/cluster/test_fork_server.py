"""Workers of the cluster that stages start are forks of a fork server, and start without it if it is killed."""

import sys
from pathlib import Path

import psutil
import ray


@ray.remote(num_cpus=0)
class Worker:
    def modules(self) -> set[str]:
        return {"torch", "transformers"} & set(sys.modules)

    def parent(self) -> int:
        return psutil.Process().ppid()


def test_a_worker_finds_torch_imported_and_a_killed_fork_server_is_replaced(ray_cluster: None) -> None:
    worker = Worker.remote()
    assert ray.get(worker.modules.remote()) == {"torch", "transformers"}
    server = psutil.Process(ray.get(worker.parent.remote()))
    assert "rayrank.cluster.fork_server" in server.cmdline()
    assert Path(server.parent().exe()).name == "raylet"
    server.kill()
    server.wait()
    other = Worker.remote()
    assert ray.get(other.modules.remote()) == {"torch", "transformers"}
    assert ray.get(other.parent.remote()) != server.pid
    assert ray.get(worker.modules.remote())  # workers outlive the server that forked them
