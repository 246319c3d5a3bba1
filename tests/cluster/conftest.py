"""One Ray and one small trained pipeline for all tests of this folder."""

import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import ray
import torch
from transformers import BertConfig, BertModel

from rayrank.cluster.connection import start_ray
from rayrank.core.config import MINILM, PipelineConfig
from rayrank.jobs.entry import configure, parser
from rayrank.text.pieces import load_tokenizer
from tests.forked_jobs import Forks

SETTINGS = [
    "dataset.demo.subjects=20", "candidates.depth=10", "encoder.layers=1", "encoder.dropout=0.1",
    "training.dev_queries=5", "input.length=96",
    "pretrain.max_steps=40", "pretrain.epochs=20", "pretrain.batch_size=16", "pretrain.length=64",
    "pointwise.max_steps=40", "pointwise.epochs=20", "pointwise.batch_size=16",
    "listwise.max_steps=40", "listwise.epochs=20", "listwise.batch_size=4",
    "resources.checkpoint_steps=10", "resources.train_cpus=1",
]  # fmt: skip
UNHURRIED = {**os.environ, "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "2"}
"""The environment of a training that is killed halfway: it waits at each checkpoint for Ray Train's next poll."""

FORKS = Forks("jobs.summary", "rayrank.stages.listwise", "rayrank.runs.scoring", "rayrank.stages.noise_report")

_encoders = tempfile.TemporaryDirectory(prefix="encoders")


@cache
def encoder() -> str:
    """Return the folder of an encoder that is small enough to be checkpointed in milliseconds."""
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=30_522, max_position_embeddings=128, **size)).save_pretrained(_encoders.name)
    load_tokenizer(MINILM).save_pretrained(_encoders.name)
    return _encoders.name


def settings() -> list[str]:
    return [f"encoder.name={encoder()}", f"text.tokenizer={MINILM}", *SETTINGS]


def configured() -> PipelineConfig:
    """The configuration of the commands below, with the digests that a job finds."""
    return configure(parser("").parse_args([part for setting in settings() for part in ("--set", setting)]))


def command(job: str, storage: Path, *more: str) -> list[str]:
    chosen = [part for setting in settings() for part in ("--set", setting)]
    return [sys.executable, "-m", f"jobs.{job}", "--storage", str(storage), *chosen, *more]


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[None]:
    start_ray()
    yield
    ray.shutdown()


@pytest.fixture(scope="package")
def joining(ray_cluster: None) -> dict[str, str]:
    """The environment of jobs that join this process's Ray instead of starting one."""
    return {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}


@pytest.fixture(scope="package")
def trained(joining: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage with the artifacts of all stages up to the listwise model."""
    storage = tmp_path_factory.mktemp("trained")
    answer = FORKS.run(command("run_pipeline", storage, "--until", "listwise"), joining)
    assert answer.returncode == 0, answer.stderr
    return storage
