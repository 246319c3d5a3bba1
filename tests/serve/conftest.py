"""One endpoint for all tests of this folder: Ray Serve over HTTP, with a model of one layer."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import ray
import torch
from ray import serve

from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.cluster.connection import start_here
from rayrank.core.config import MINILM, EncoderConfig, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.models.encoder import load_encoder
from rayrank.models.reranker import Reranker
from rayrank.scores.precision import Level, PrecisionTable
from rayrank.serve.app import build
from rayrank.serve.run import HOOK
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

PRECISION = PrecisionTable(
    num_queries=100,
    levels=(
        Level(wanted=0.5, logit=-100, probability=0, num_queries=100, precision=0.5, low=0.4, high=0.6),
        Level(wanted=0.9, logit=100, probability=1, num_queries=50, precision=0.9, low=0.8, high=0.95),
        Level(wanted=0.95, num_queries=7, reason="dev is too small"),
    ),
)
"""Every score reaches the first threshold, and none the second."""


def make_model(folder: Path, seed: int) -> Path:
    """Export a model with random weights, so that another seed gives other scores."""
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(seed)
    model = Reranker(load_encoder(EncoderConfig(layers=1), word_table(tokenizer), StrmConfig()), 1).eval()
    settings = settings_of(model, InputConfig(), QueryTypesConfig(), ["description", "location"], weight=0.5)
    export(str(folder), Bundle(model, tokenizer, settings, precision=PRECISION))
    return folder


@contextmanager
def clients(url: str, body: dict[str, Any], outcomes: list[httpx.Response | Exception]) -> Iterator[None]:
    """Send requests from four threads and collect the outcomes, while the body of the `with` statement runs."""
    stop = threading.Event()

    def keep_asking() -> None:
        with httpx.Client(timeout=60) as client:
            while not stop.is_set():
                try:
                    outcomes.append(client.post(url, json=body))
                except httpx.HTTPError as error:
                    outcomes.append(error)

    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(keep_asking) for _ in range(4)]
        try:
            yield
        finally:
            stop.set()
        for future in futures:
            future.result()


@contextmanager
def application(serving: str, name: str, **settings: Any) -> Iterator[tuple[str, Callable[..., None]]]:
    """Yield the URL of a separate endpoint, and a function that deploys other settings to it."""

    def deploy(**changes: Any) -> None:
        serve.run(build({**settings, **changes}), name=name, route_prefix=f"/{name}")

    deploy()
    yield f"{serving}/{name}", deploy
    serve.delete(name)


def wait_until(fact: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small exported model."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny", seed=0)


@pytest.fixture(scope="session")
def run_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of first stages over a small corpus, by their kind."""
    storage = tmp_path_factory.mktemp("storage")
    job = "jobs.run_pipeline --until joined --set dataset.demo.subjects=20 --set candidates.depth=10 --set".split()
    joined = "runs.joined={kind: rrf, of: [hybrid, bm25]}"
    subprocess.run([sys.executable, "-m", *job, joined, "--storage", str(storage)], check=True)
    kinds = ("search", "dense", "interpolate", "rrf")
    return {kind: folder for kind in kinds for folder in (storage / kind).iterdir()}


@pytest.fixture(scope="session")
def run_folder(run_folders: dict[str, Path]) -> Path:
    """The folder of BM25's run over a small corpus."""
    return run_folders["search"]


@pytest.fixture(scope="session")
def serving() -> Iterator[str]:
    """The URL of a Ray Serve without an application."""
    port = free_port()
    os.environ.setdefault(*HOOK)
    start_here(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def server(serving: str, model_folder: Path) -> str:
    """The base URL of an endpoint with the tiny model."""
    # On a busy machine the tests' requests may wait for long; they are not to be refused for that.
    serve.run(build({"model": str(model_folder), "batching.queue_s": "600"}), name="server", route_prefix="/")
    assert httpx.get(f"{serving}/health", timeout=30).status_code == 200
    return serving
