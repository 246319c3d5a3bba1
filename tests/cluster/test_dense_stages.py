"""Dense first stages on the demo corpus: vectors, training, exact and approximate search, a kill while embedding."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.overrides import apply
from rayrank.stages.make import make
from tests.processes import kill_whole

from .conftest import FORKS, configured, encoder

SMALL = {
    "dense.length": 64, "dense.partition_texts": 30, "train_dense.max_steps": 6, "train_dense.batch_size": 16,
    "candidates.train_depth": 4,
}  # fmt: skip


def rows(run: Artifact, split: str) -> pa.Table:
    return pa.concat_tables([run.read_table(name) for name in run.names(split)])


@pytest.mark.slow
def test_trained_and_approximate_dense_search_work_from_an_empty_storage(ray_cluster: None, tmp_path: Path) -> None:
    changes = {**SMALL, "dense.encoder": encoder()}
    config, store = apply(configured().model_dump(), changes), Store(str(tmp_path))
    nodes = dict.fromkeys([*flow.plan("hybrid", config), *flow.plan("trained_hybrid", config)])
    made = {node: make(node, config, store) for node in nodes}
    num_passages = made["corpus"].manifest["num_passages"]
    vectors = made["embeddings"].manifest
    assert vectors["num_passages"] == sum(made["embeddings"].num_rows(name) for name in vectors["shards"])
    assert (vectors["dimension"], len(vectors["shards"])) == (32, -(-num_passages // 30))
    assert made["train_dense"].manifest["num_steps"] == 6
    for split in ("train", "dev", "test"):
        for name in ("bm25", "dense", "trained_dense", "hybrid", "trained_hybrid"):
            found = rows(made[f"run:{name}"], split)
            assert set(pc.value_counts(found["query_id"]).field(1).to_pylist()) == {4 if split == "train" else 10}

    approximate = apply(config.model_dump(), {"runs.dense.exact_up_to": 0, "runs.dense.recall": 1.0})
    built = make("dense", approximate, store)
    assert built.manifest["ann"]["recall@100"] == pytest.approx(1, abs=0.02)
    exact, found = rows(made["run:dense"], "test"), rows(built, "test")
    # Scores, not ids: passages with equal vectors may change places.
    assert found["score"].to_numpy() == pytest.approx(exact["score"].to_numpy(), abs=2e-3)


@pytest.mark.slow
def test_a_job_killed_while_embedding_makes_only_the_missing_files_afterwards(
    joining: dict[str, str], tmp_path: Path
) -> None:
    job = "jobs.run_pipeline --until embeddings --set dataset.demo.subjects=60 --set dense.partition_texts=6"
    small = f"--set dense.length=64 --set dense.encoder={encoder()}"
    command = [sys.executable, "-m", *job.split(), *small.split(), "--storage", str(tmp_path)]

    def files() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("embeddings/*/passages/*.parquet")}

    process = subprocess.Popen(command)
    deadline = time.monotonic() + 240
    while len(files()) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    kill_whole(process)
    survivors = files()
    assert survivors
    assert not list(tmp_path.glob("embeddings/*/manifest.json"))

    again = FORKS.run(command, joining)

    assert again.returncode == 0, again.stderr
    reused = re.search(r"(\d+) of \d+ partitions exist already", again.stderr)
    assert reused
    assert int(reused[1]) == len(survivors)
    assert {name: files()[name] for name in survivors} == survivors
    assert len(files()) > len(survivors)
