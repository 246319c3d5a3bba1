"""A cluster of several nodes, as processes of this machine; `memory://` stands for a path that every node has alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, sys
from ray.cluster_utils import Cluster

cluster = Cluster()
cluster.add_node(num_cpus=1, object_store_memory=10**8, include_dashboard=False)
cluster.add_node(num_cpus=1, object_store_memory=10**8)
os.environ["RAY_ADDRESS"] = cluster.address

from rayrank.cluster.every_node import check_shared
from rayrank.core.errors import StorageError
from rayrank.jobs import doctor
from rayrank.jobs.entry import parser

def checked(storage, *settings):
    sets = [part for setting in settings for part in ("--set", setting)]
    arguments = parser("").parse_args(["--storage", storage, *sets])
    arguments.address = None
    print("== exit", doctor.main(arguments))

check_shared(sys.argv[1])
checked(sys.argv[1], "resources.train_cpus=1")
checked("memory://alone", "resources.train_workers=3", "resources.train_cpus=1")
try:
    check_shared("memory://alone")
except StorageError as error:
    print("==", error)
"""


def test_storage_that_only_one_node_sees_is_found_before_a_job_runs(tmp_path: Path) -> None:
    environment = {**os.environ, "RAYRANK_FORK_WORKERS": "0"}  # a worker for each node; none of them imports torch
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    shared, alone, refused = answer.stdout.split("== exit ")
    assert f"every node reads and writes {tmp_path}" in shared
    assert ", 2 nodes" in shared
    assert "problem " not in shared
    assert alone.startswith("0\n")
    faults = [line for line in alone.splitlines() if "memory://alone cannot be used: it does not see the files" in line]
    assert len(faults) == 2
    assert "warning  3 training workers with 1 cores and 0 GPUs each: the cluster has room for 2" in alone
    assert refused.startswith("1\n")
    assert "--storage memory://alone is not shared by all nodes: on " in refused
