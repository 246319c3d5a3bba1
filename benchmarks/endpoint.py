"""Shared by the benchmarks of the endpoint: a model and requests on disk, and an endpoint that serves the model."""

import argparse
import json
import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import ray
from ray import serve as ray_serve

from benchmarks.pairs import TextPairs, read_pairs
from benchmarks.peer_server import free_port
from benchmarks.score import exported
from rayrank.bundle.export import export
from rayrank.cluster.connection import start_here
from rayrank.core.config import StrmConfig
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.serve.app import build
from rayrank.serve.run import HOOK

LENGTH = 180
"""Maximum word pieces of a pair."""


class Work(NamedTuple):
    """The model and the requests of a benchmark."""

    model: str
    bodies: str
    """A file with one request per line."""
    pairs: TextPairs
    """The pairs of all requests."""
    pairs_per_request: float
    seconds: float


def build_work(
    arguments: argparse.Namespace, folder: Path, sizes: tuple[int, int], repeated: float = 0.0, encoder: str = "minilm"
) -> Work:  # fmt: skip
    """Write the model and the requests into a folder; `repeated` is the share of passages that all requests contain."""
    plain = exported(LENGTH, StrmConfig(form="off"), encoder)
    graph = int8(onnx_graph(plain.model)) if arguments.backend == "onnx-int8" else None
    export(str(folder / "model"), replace(plain, int8=graph))
    texts, rng = read_pairs(arguments.data, arguments.pairs), random.Random(13)
    queries: list[str] = []
    passages: list[str] = []
    bodies = []
    while len(passages) < arguments.pairs:
        count, start = rng.randint(*sizes), len(passages)
        same = round(repeated * count)
        chosen = texts.passages[:same] + texts.passages[start + same : start + count]
        # Logits, so that the scores of the two servers can be compared.
        bodies.append(json.dumps({"query": texts.queries[start], "texts": chosen, "raw_scores": True}))
        queries += [texts.queries[start]] * len(chosen)
        passages += chosen
    file = folder / "bodies.jsonl"
    file.write_text("\n".join(bodies))
    pairs = TextPairs(queries, passages, texts.source)
    return Work(str(folder / "model"), str(file), pairs, len(passages) / len(bodies), arguments.seconds)


@contextmanager
def endpoint(settings: dict[str, Any]) -> Iterator[str]:
    """Run the endpoint on a new Ray instance; yields its URL."""
    os.environ.setdefault(*HOOK)  # what `rayrank serve` puts around Ray's HTTP proxies
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    # By default Ray lowers the priority of its workers, which would favour the baseline server.
    start_here(
        include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING,
        _system_config={"worker_niceness": 0},
    )  # fmt: skip
    try:
        port = free_port()
        ray_serve.start(http_options={"host": "127.0.0.1", "port": port})
        ray_serve.run(build(settings), route_prefix="/")
        yield f"http://127.0.0.1:{port}/rerank"
    finally:
        # This also stops Serve.
        ray.shutdown()
