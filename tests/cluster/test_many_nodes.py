"""A cluster of two nodes, as processes of this machine: what is checked before a job, and what a sweep survives.

`memory://` stands for a path that every node has alone. One process runs all of SCRIPT, because a cluster takes long to
start.
"""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCRIPT = """
import os, signal, sys
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

cluster = Cluster()
cluster.add_node(num_cpus=1, object_store_memory=10**8, include_dashboard=False)
second = cluster.add_node(num_cpus=1, object_store_memory=10**8)
os.environ["RAY_ADDRESS"] = cluster.address
storage = sys.argv[1]

from rayrank.cluster.every_node import check_shared
from rayrank.core.artifacts import Artifact
from rayrank.core.errors import StorageError
from rayrank.core.overrides import build
from rayrank.jobs import doctor
from rayrank.jobs.entry import parser
from rayrank.tune.execution import _tune
from rayrank.tune.halving import SharedRungs
from rayrank.tune.search import StudySearch
from rayrank.tune.spaces import open_space
from rayrank.tune.study import open_storage, open_study, records

def checked(storage, *settings):
    sets = [part for setting in settings for part in ("--set", setting)]
    arguments = parser("").parse_args(["--storage", storage, *sets])
    arguments.address = None
    print("exit", doctor.main(arguments))

check_shared(storage)
checked(storage, "resources.train_cpus=1")
print("==")
checked("memory://alone", "resources.train_workers=3", "resources.train_cpus=1")
print("==")
try:
    check_shared("memory://alone")
except StorageError as error:
    print(error)
print("==")

folder, space = Artifact(storage, "sweeps", "halved"), open_space("default", build("demo"))
study = open_study(open_storage(folder), cost=False)
for value in (0.40, 0.42, 0.44):
    trial = study.ask()
    space.suggest(trial)
    trial.report(value, 1)
there = NodeAffinitySchedulingStrategy(second.node_id, soft=True)
rungs = SharedRungs.options(scheduling_strategy=there).remote(folder, 3)
def goes_on(name, dev):
    return ray.get(rungs.may_continue.remote(name, 1, dev), timeout=100)
print("goes on:", goes_on("weak", 0.1))
cluster.remove_node(second, allow_graceful=False)
print("goes on:", goes_on("weaker", 0.05), goes_on("strong", 0.5))
print("==")

def lost_once(changes):
    if not Path(storage, "lost").exists():
        Path(storage, "lost").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    ray.tune.report({"dev": 0.5, "epoch": 1, "outcome": "finished"})

def lost_always(changes):
    os.kill(os.getpid(), signal.SIGKILL)

for number, trial in enumerate((lost_once, lost_always)):
    folder = Artifact(storage, "sweeps", str(number))
    search = StudySearch(space, open_storage(folder), False, 13, lambda changes: set(), "dev MRR@10")
    _tune(trial, search, folder, trials=1, parallel=1, retries=1)
    (record,) = records(search.study)
    print("trial:", record.state, record.dev, record.reason)
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The storage of SCRIPT, then what each of its parts prints."""
    storage = str(tmp_path_factory.mktemp("storage"))
    environment = {**os.environ, "RAYRANK_FORK_WORKERS": "0"}  # no worker here needs torch
    command = [sys.executable, "-c", SCRIPT, storage]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert answer.returncode == 0, answer.stderr[-5000:]
    return [storage, *answer.stdout.split("==\n")]


def said(part: str, start: str) -> list[str]:
    """The rests of the lines that begin with a text; Ray prints lines of its own between them."""
    return [line.removeprefix(start) for line in part.splitlines() if line.startswith(start)]


def test_a_sound_cluster_has_no_problem(told: list[str]) -> None:
    storage, sound, *_ = told
    assert f"every node reads and writes {storage}" in sound
    assert ", 2 nodes" in sound
    assert "problem " not in sound
    assert "exit 0" in sound


def test_storage_that_only_one_node_sees_is_found_before_a_job_runs(told: list[str]) -> None:
    _, _, alone, refused, *_ = told
    faults = [line for line in alone.splitlines() if "memory://alone cannot be used: it does not see the files" in line]
    assert len(faults) == 2
    assert "warning  3 training workers with 1 cores and 0 GPUs each: the cluster has room for 2" in alone
    assert "exit 1" in alone
    assert refused.startswith("--storage memory://alone is not shared by all nodes: on ")
    assert len(refused.splitlines()) == 1


def test_early_stopping_survives_the_loss_of_its_node_with_all_measurements(told: list[str]) -> None:
    assert said(told[4], "goes on: ") == ["False", "False True"]


def test_a_trial_whose_process_is_lost_is_repeated_as_often_as_a_training(told: list[str]) -> None:
    once, always = said(told[5], "trial: ")
    assert once == "finished 0.5 "
    assert always.startswith("failed None The trial's own process died")
