"""Latency of POST /search with different first stages: BM25, dense and hybrid, over HTTP, with the same re-ranker.

    python -m benchmarks.search [--dataset demo] [--subjects 800] [--storage DIR] [--stages bm25 dense hybrid]

Each first stage has an endpoint of its own; all are started before the first request, so that rounds can alternate
between them. The runs that they search are made by `jobs.run_pipeline --until NAME`, unless storage has them. The
re-ranker is MiniLM-L6 with an untrained head and one thread. A separate process (`rayrank.capacity.load`) sends the
dataset's held-out queries, by default one at a time. A first stage always searches to the depth of its run
(candidates.depth), and its best passages are re-ranked: --depths says how many. With depth 1, latency is nearly that of
the first stage and of HTTP. `--set runs.dense.exact_up_to=1000` measures approximate dense search.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import torch
from ray import serve as ray_serve

from benchmarks.endpoint import LENGTH, endpoint
from benchmarks.score import exported
from benchmarks.tables import spread
from rayrank.bundle.export import export
from rayrank.capacity.load import ask, figures
from rayrank.core.artifacts import Artifact
from rayrank.core.config import StrmConfig
from rayrank.models.inference.onnx_graph import int8, onnx_graph
from rayrank.serve.app import build
from rayrank.serve.first_stages import corpus_of, open_run

CORES = 0.2
"""Cores that Ray reserves for a re-ranker, so that all endpoints fit on two cores; each has one thread."""

WARM_UP_S = 5
"""Seconds of requests before the first round, for each first stage and depth."""


def main() -> None:
    """Make the runs, start the endpoints, and measure them in alternation."""
    arguments = parsed()
    # On SIGTERM, exit normally, so that all started processes are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        runs = {name: made_run(arguments, name, folder) for name in arguments.stages}
        corpus = corpus_of(runs[arguments.stages[0]])
        bodies = {depth: write_bodies(corpus, depth, folder) for depth in arguments.depths}
        model = write_model(arguments.backend, folder)
        with endpoints({name: settings(arguments, model, run) for name, run in runs.items()}) as urls:
            rounds = measure(arguments, urls, bodies)
    report(arguments, rounds, corpus)


def parsed() -> argparse.Namespace:
    """Return the command-line options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--dataset", default="demo", help="demo, or KIND:PATH as in jobs.run_pipeline")
    options.add_argument("--subjects", type=int, default=800, help="size of the demo dataset")
    options.add_argument("--storage", metavar="DIR", help="keep the runs here, or use those that are here")
    options.add_argument("--preset", default="minilm", help="the preset of the runs")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="further settings of the runs")
    options.add_argument("--stages", nargs="+", default=["bm25", "dense", "hybrid"], help="names of first stages")
    options.add_argument("--depths", type=int, nargs="+", default=[1, 20], help="numbers of passages to re-rank")
    options.add_argument("--backend", choices=("torch", "onnx-int8"), help="default: onnx-int8 on a CPU, else torch")
    options.add_argument("--clients", type=int, default=1, help="number of concurrent clients")
    options.add_argument("--seconds", type=float, default=10, help="duration of a first stage's turn in a round")
    options.add_argument("--repeats", type=int, default=5, help="number of rounds")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    arguments.backend = arguments.backend or ("torch" if torch.cuda.is_available() else "onnx-int8")
    return arguments


def made_run(arguments: argparse.Namespace, name: str, folder: Path) -> Artifact:
    """Return the run of a first stage, which is made if storage does not have it."""
    storage, summary = arguments.storage or str(folder / "storage"), folder / f"{name}.json"
    changes = [f"dataset.demo.subjects={arguments.subjects}"] if arguments.dataset == "demo" else []
    command = ["jobs.run_pipeline", "--preset", arguments.preset, "--dataset", arguments.dataset, "--storage", storage]
    command += ["--until", name, "--json", str(summary)]
    command += [part for change in [*changes, *arguments.set] for part in ("--set", change)]
    # In a process of its own, with its own Ray.
    subprocess.run([sys.executable, "-m", *command], check=True)
    stages = json.loads(summary.read_text())["stages"]
    return open_run(next(fact["path"] for fact in stages if fact["stage"] == f"run:{name}"))


def write_bodies(corpus: Artifact, depth: int, folder: Path) -> str:
    """Write a file with one request for each held-out query, and return its path."""
    table = corpus.read_table("queries.parquet", ["text", "split"])
    queries = table.filter(pc.not_equal(table["split"], "train"))["text"].to_pylist()
    # The load generator counts `texts` as pairs; the endpoint ignores them.
    requests = [{"query": query, "depth": depth, "texts": [None] * depth} for query in queries]
    file = folder / f"bodies-{depth}.jsonl"
    file.write_text("\n".join(map(json.dumps, requests)))
    return str(file)


def write_model(backend: str, folder: Path) -> str:
    """Export the re-ranker, and return its folder."""
    plain = exported(LENGTH, StrmConfig(form="off"))
    graph = int8(onnx_graph(plain.model)) if backend == "onnx-int8" else None
    export(str(folder / "model"), replace(plain, int8=graph))
    return str(folder / "model")


def settings(arguments: argparse.Namespace, model: str, run: Artifact) -> dict[str, Any]:
    """Return the settings of the endpoint that searches with a run; all endpoints share the GPU, if there is one."""
    gpus = round(1 / len(arguments.stages), 2) if torch.cuda.is_available() else 0
    search = {"run": run.url, "depth": max(arguments.depths)}
    return {"model": model, "backend": arguments.backend, "search": search, "resources": {"cpus": CORES, "gpus": gpus}}


@contextmanager
def endpoints(by_name: dict[str, dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Run an endpoint for each first stage, all on one Ray; yields their URLs."""
    first, *others = by_name
    with endpoint(by_name[first]) as url:
        base = url.removesuffix("/rerank")
        for name in others:
            ray_serve.run(build(by_name[name]), name=name, route_prefix=f"/{name}")
        yield {first: f"{base}/search", **{name: f"{base}/{name}/search" for name in others}}


def measure(arguments: argparse.Namespace, urls: dict[str, str], bodies: dict[int, str]) -> list[dict[str, Any]]:
    """Return the latencies of every round, first stage and depth."""
    turns = [(name, depth) for depth in arguments.depths for name in arguments.stages]
    for name, depth in turns:
        ask(urls[name], bodies[depth], WARM_UP_S, clients=arguments.clients)
    rounds = []
    for number in range(arguments.repeats):
        for name, depth in turns:
            point = figures(ask(urls[name], bodies[depth], arguments.seconds, clients=arguments.clients))
            rounds.append({"stage": name, "depth": depth, "round": number, **asdict(point)})
            print(f"{name:<16}{depth:>4}{point.row()}", flush=True)
    return rounds


def report(arguments: argparse.Namespace, rounds: list[dict[str, Any]], corpus: Artifact) -> None:
    """Print a table of the medians over the rounds, and write all figures."""
    passages = corpus.manifest["num_passages"]
    print(f"\n{passages:,} passages of {arguments.dataset}, {arguments.backend}, {arguments.clients} clients")
    print(
        f"{'first stage':<16}{'re-ranked':>10}{'p50 ms':>22}{'p95 ms':>22}{'p99 ms':>22}{'requests':>10}{'failed':>8}"
    )
    for depth in arguments.depths:
        for name in arguments.stages:
            found = [entry for entry in rounds if (entry["stage"], entry["depth"]) == (name, depth)]
            latencies = ([1000 * entry[share] for entry in found] for share in ("p50", "p95", "p99"))
            columns = "".join(f"{spread(values, 1):>22}" for values in latencies)
            num_requests = sum(entry["num_requests"] for entry in found)
            num_failed = sum(sum(entry["failures"].values()) for entry in found)
            print(f"{name:<16}{depth:>10}{columns}{num_requests:>10,}{num_failed:>8,}")
    if arguments.json:
        facts = {"settings": vars(arguments), "num_passages": passages, "rounds": rounds}
        Path(arguments.json).write_text(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
