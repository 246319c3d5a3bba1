"""An embedded Ray for a file of tests, and a small pipeline that was run once for all files."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from rayrank.stages.cluster import start_ray

SETTINGS = [
    "dataset.demo.subjects=20", "candidates.depth=10", "encoder.layers=1", "encoder.dropout=0.1",
    "training.dev_queries=5", "input.length=96",
    "pretrain.max_steps=40", "pretrain.epochs=20", "pretrain.batch_size=16", "pretrain.length=64",
    "pointwise.max_steps=40", "pointwise.epochs=20", "pointwise.batch_size=16",
    "listwise.max_steps=40", "listwise.epochs=20", "listwise.batch_size=4",
    "resources.checkpoint_steps=10",
]  # fmt: skip


def command(job: str, storage: Path, *more: str) -> list[str]:
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return [sys.executable, "-m", f"jobs.{job}", "--storage", str(storage), *settings, *more]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with every stage up to the listwise model."""
    storage = tmp_path_factory.mktemp("trained")
    subprocess.run(command("run_pipeline", storage, "--until", "listwise"), check=True)
    return storage


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    start_ray()
    yield
    ray.shutdown()
