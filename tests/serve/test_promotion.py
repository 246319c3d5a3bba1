"""Promotion on a running Serve, through its REST API with a token, under load."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pytest
import yaml

from rayrank.bundle.dev_sample import JudgedQuery
from rayrank.bundle.export import export, load
from rayrank.bundle.golden import GoldenPair
from rayrank.bundle.text_scorer import score
from tests.serve.conftest import clients, free_port, make_model

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
QUERIES = ["where is the bogue", "how tall is the lighthouse of the bay", "who asked insouciantly"]
PASSAGES = [f"The bogue number {number} lies in the bay. " * (number % 5 + 1) for number in range(8)]
REQUEST = {"query": QUERIES[0], "documents": PASSAGES, "query_type": "location", "raw_scores": True}


class Cluster(NamedTuple):
    """A head node with an endpoint that serves the model `old`; `new` has unrelated scores."""

    dashboard: str
    endpoint: str
    old: Path
    new: Path

    def promote(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "jobs.promote", "--to", self.dashboard, *options]
        storage = ["--storage", str(self.old.parent / "storage")]
        return subprocess.run([*command, *storage], cwd=ROOT, env=environment(), text=True, capture_output=True)

    def scores(self) -> np.ndarray:
        found = httpx.post(f"{self.endpoint}/v1/rerank", json=REQUEST, timeout=60).json()["results"]
        return np.array([row["relevance_score"] for row in sorted(found, key=lambda row: row["index"])])


def environment() -> dict[str, str]:
    path = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": f"{ROOT / 'platform'}{os.pathsep}{ROOT}"}
    # Draining takes half a minute, and a cluster of one node has nowhere to move its work.
    quick = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    return {**os.environ, **path, **quick, "RAY_AUTH_MODE": "token"}


def wanted(folder: Path) -> np.ndarray:
    return score(load(str(folder)), QUERIES[:1] * 8, PASSAGES, ["location"] * 8)


def golden_model(folder: Path, seed: int, dev: tuple[JudgedQuery, ...] = ()) -> Path:
    """Export a model with random weights and golden pairs."""
    plain = load(str(make_model(folder.with_name(f"{folder.name}-plain"), seed)))
    queries, passages, types = QUERIES * 8, np.repeat(PASSAGES, 3).tolist(), ["location"] * 24
    order = np.argsort(queries, kind="stable")
    scores = score(plain, queries, passages, types)
    pairs = [
        GoldenPair(query=queries[row], query_type="location", passage=passages[row], score=scores[row]) for row in order
    ]
    settings = plain.settings.model_copy(update={"first_stage_weight": seed / 4})
    export(str(folder), replace(plain, settings=settings, golden=tuple(pairs), dev=dev))
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    subprocess.run([BIN / "ray", "get-auth-token", "--generate"], env=environment(), check=True, capture_output=True)
    models = tmp_path_factory.mktemp("models")
    old = golden_model(models / "old", 0)
    best = int(np.argmax(wanted(old)))
    judged = JudgedQuery(
        query=QUERIES[0], query_type="location", documents=tuple(PASSAGES), first_stage_scores=(1.0,) * 8,
        relevance=tuple(int(place == best) for place in range(8)),
    )  # fmt: skip
    new = golden_model(models / "new", 1, (judged,) * 20)
    dashboard, port = free_port(), free_port()
    # The path of a Unix socket is limited to about 100 characters, so pytest's folder is too long.
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        command = [BIN / "ray", "start", "--head", "--block", "--num-cpus=4", f"--port={free_port()}"]
        command += [f"--temp-dir={folder}", f"--dashboard-port={dashboard}"]
        command += [f"--dashboard-agent-listen-port={free_port()}"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
        try:
            found = Cluster(f"http://127.0.0.1:{dashboard}", f"http://127.0.0.1:{port}", old, new)
            deploy(found, port)
            yield found
        finally:
            process.terminate()
            process.wait(timeout=90)


def deploy(cluster: Cluster, port: int) -> None:
    """Deploy the endpoint by `serve deploy FILE`, and wait until it is ready."""
    app = {"name": "ranking", "import_path": "serve.app:build", "args": {"model": str(cluster.old)}}
    file = cluster.old.parent / "serve.yaml"
    file.write_text(yaml.safe_dump({"http_options": {"host": "127.0.0.1", "port": port}, "applications": [app]}))
    command = [BIN / "serve", "deploy", str(file), "--address", cluster.dashboard]
    deadline = time.monotonic() + 180
    while subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True).returncode:
        assert time.monotonic() < deadline, "the head did not start"
    while True:
        try:
            if httpx.get(f"{cluster.endpoint}/ready", timeout=10).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        assert time.monotonic() < deadline, "the endpoint did not start"
        time.sleep(0.5)


def test_a_model_that_ranks_the_dev_queries_of_its_folder_worse_is_refused_and_the_live_one_is_kept(
    cluster: Cluster,
) -> None:
    done = cluster.promote("--model", str(cluster.new))

    assert done.returncode == 2
    assert "is not promoted: MRR@10 falls by" in done.stderr
    assert np.allclose(cluster.scores(), wanted(cluster.old), atol=1e-4)


def test_a_model_that_cannot_be_judged_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    shutil.copytree(cluster.new, tmp_path / "model")
    (tmp_path / "model" / "dev.jsonl").unlink()

    done = cluster.promote("--model", str(tmp_path / "model"))

    assert done.returncode == 2
    assert "is not promoted: its folder has no judged dev queries to compare it on; name some with" in done.stderr
    assert np.allclose(cluster.scores(), wanted(cluster.old), atol=1e-4)


def test_a_model_with_a_lower_metric_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    best = int(np.argmax(wanted(cluster.old)))
    assert best != int(np.argmax(wanted(cluster.new)))
    line = {"query": QUERIES[0], "query_type": "location", "documents": PASSAGES}
    line["relevance"] = [int(place == best) for place in range(8)]
    (tmp_path / "queries.jsonl").write_text("\n".join([json.dumps(line)] * 20))

    done = cluster.promote("--model", str(cluster.new), "--queries", str(tmp_path / "queries.jsonl"))

    assert done.returncode == 2
    assert "is not promoted: MRR@10 falls by" in done.stderr
    assert np.allclose(cluster.scores(), wanted(cluster.old), atol=1e-4)


def test_a_model_that_does_not_score_as_in_training_is_refused_even_with_force(
    cluster: Cluster, tmp_path: Path
) -> None:
    shutil.copytree(cluster.new, tmp_path / "model")
    shutil.copy(cluster.old / "model.safetensors", tmp_path / "model")

    done = cluster.promote("--model", str(tmp_path / "model"), "--force")

    assert done.returncode == 2
    assert "is not promoted: scores of golden pairs are off by up to" in done.stderr
    assert np.allclose(cluster.scores(), wanted(cluster.old), atol=1e-4)


def test_promotion_and_rollback_under_load_fail_no_request(cluster: Cluster, tmp_path: Path) -> None:
    outcomes: list[httpx.Response | Exception] = []
    unjudged = {"query": QUERIES[0], "query_type": "location", "documents": PASSAGES}
    (tmp_path / "queries.jsonl").write_text(json.dumps(unjudged))
    with clients(f"{cluster.endpoint}/v1/rerank", REQUEST, outcomes):
        there = cluster.promote("--model", str(cluster.new), "--queries", str(tmp_path / "queries.jsonl"), "--force")
        new = cluster.scores()
        back = cluster.promote("--back")
        old = cluster.scores()

    assert there.returncode == 0, there.stderr
    assert back.returncode == 0, back.stderr
    assert "the endpoint serves it: 24 golden pairs" in there.stdout
    assert "the weight of first-stage scores changes from 0 to 0.25, which this comparison" in there.stdout
    assert f"{cluster.old} is back in place of {cluster.new}" in back.stdout
    assert np.allclose(new, wanted(cluster.new), atol=1e-4)
    assert np.allclose(old, wanted(cluster.old), atol=1e-4)
    assert not np.allclose(new, old, atol=1e-3)
    assert len(outcomes) > 50
    assert {getattr(outcome, "status_code", outcome) for outcome in outcomes} == {200}


def test_a_model_that_the_replicas_cannot_load_leaves_the_old_one_serving(cluster: Cluster) -> None:
    # The replicas cannot load a folder that does not exist.
    script = f"""
from rayrank.core.errors import ConfigError
from rayrank.serve.targets import open_target
target = open_target({cluster.dashboard!r})
try:
    target.replace_model({{**target.live().settings, "model": "/nowhere"}})
except ConfigError as error:
    print(error)
"""
    outcomes: list[httpx.Response | Exception] = []
    with clients(f"{cluster.endpoint}/v1/rerank", REQUEST, outcomes):
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, env=environment(), text=True, capture_output=True
        )

    assert "/nowhere does not start: /nowhere is no exported model" in done.stdout, done.stderr
    assert "the replicas kept the previous model all the while. The previous model was restored." in done.stdout
    assert len(outcomes) > 50
    assert {getattr(outcome, "status_code", outcome) for outcome in outcomes} == {200}
    assert np.allclose(cluster.scores(), wanted(cluster.old), atol=1e-4)
