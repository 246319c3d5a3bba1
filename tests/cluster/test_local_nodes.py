"""The nodes that benchmarks/node_drill and benchmarks/soak kill: a killed node is gone with its processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys, time
from pathlib import Path
import psutil
from benchmarks.local_nodes import Driver, LocalNodes, of_node, running, title, wait_until

nodes = LocalNodes(2, Path(sys.argv[1]) / "tmp")
try:
    nodes.start()
    driver = Driver(["tests.cluster.test_local_nodes"], nodes, Path(sys.argv[1]) / "log", STEPS=sys.argv[1])
    with running(driver):
        assert wait_until(lambda: nodes.node_with("ray::sleep") is not None, driver, 60, lambda: None), driver.said()
        node = nodes.node_with("ray::sleep")
        doomed = of_node(node)
        assert any("ray::sleep" in title(process) for process in doomed)
        nodes.kill(node)
        psutil.wait_procs(doomed, timeout=10)
        print("left", [process.pid for process in doomed if process.is_running()])
        nodes.add()
        wait_until(lambda: not driver.runs, driver, 120, lambda: None)
        print("ended", driver.process.returncode, "nodes", len(nodes.workers()))
finally:
    nodes.stop()
time.sleep(1)
here = [p for p in psutil.process_iter() if p.pid != os.getpid()]
def is_ours(process):
    try:
        return process.environ().get("TMPDIR") == sys.argv[1] + "/tmp"
    except psutil.Error:
        return False
print("processes", [title(process) for process in here if is_ours(process)])
"""


def sleep_once(folder: str) -> None:
    """Wait for ever in the first attempt, so that it ends only with its node."""
    import time

    if (place := Path(folder) / "begun").exists():
        return
    place.touch()
    time.sleep(1000)


def test_a_killed_node_is_gone_with_its_processes_and_its_task_runs_on_another_one(tmp_path: Path) -> None:
    environment = {**os.environ, "RAYRANK_FORK_WORKERS": "0"}
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "left []" in answer.stdout
    assert "ended 0 nodes 2" in answer.stdout
    assert "processes []" in answer.stdout


if __name__ == "__main__":
    import ray

    ray.init(log_to_driver=False)
    ray.get(ray.remote(max_retries=3)(sleep_once).options(name="sleep").remote(os.environ["STEPS"]))
