"""The endpoint under load, compared with the same model in CrossEncoder behind FastAPI on the same machine.

    python -m benchmarks.serve [--encoder minilm] [--backend onnx-int8] [--passages 20 50] [--seconds 20] [--json FILE]

The model is MiniLM-L6 with an untrained head, or has BERT-large's shape; it has full attention, because CrossEncoder
has no other. A request has a query and 20 to 50 passages, and is sent by a separate process (`rayrank.capacity.load`).
First, so many concurrent clients send requests that a server is never idle; its throughput then is its saturation.
rayrank's saturation is measured in alternation with its scorer alone in this process, on the ids of the same pairs.
Then loads below saturation are offered, and the benchmark searches for the highest load whose p95 stays within a bound:
twice the latency of the baseline for a single client. The baseline scores one request at once or FastAPI's 40,
whichever is faster; with --int8-peer it uses ONNX Runtime in int8. The endpoint's cache is too small to help, except
for passages repeated by --repeated.
"""

import argparse
import json
import math
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch

from benchmarks.endpoint import LENGTH, Work, build_work, endpoint
from benchmarks.load_plot import load_png
from benchmarks.peer_server import running
from benchmarks.synthetic import ENCODERS
from rayrank.bundle.export import load
from rayrank.bundle.text_scorer import pair_texts, scorer_of
from rayrank.capacity.load import HEADER, Point, ask, figures
from rayrank.models.inference.prepare import compile_for_scoring
from rayrank.serve.piece_cache import ENTRY_OVERHEAD

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)
"""Loads that are offered to a server, as shares of its saturation; rayrank is offered the baseline's loads too."""

OVERLOAD = 1.2
"""The highest load that is offered, as a multiple of saturation, and the factor to the next load if the bound still
holds."""

TRIES = 4
"""Further loads in the search for the highest one within the bound."""

COMPARED = 8
"""Requests whose scores are compared between the servers."""

MIN_CORRELATION, MIN_INT8_CORRELATION = 0.98, 0.95
"""Smallest accepted correlation of the two servers' scores, in general and if both quantize to int8 differently."""

ONE, FASTAPI = 1, 40
"""Requests that the baseline scores at once."""


@dataclass
class Side:
    """A server and its figures, all in pairs per second."""

    name: str
    url: str
    work: Work
    closed: dict[int, float] = field(default_factory=dict)
    """Throughput by the number of concurrent clients."""
    points: list[Point] = field(default_factory=list)
    carried: float = 0.0
    """The highest load whose p95 is within the bound."""

    @property
    def saturation(self) -> float:
        """The highest throughput."""
        return max(self.closed.values())

    @property
    def shares(self) -> list[float]:
        """The loads to offer, from light to heavy."""
        return [share * self.saturation for share in SHARES]

    def saturate(self, clients: Sequence[int]) -> None:
        """Measure the throughput with each number of concurrent clients."""
        for count in clients:
            self.closed[count] = figures(ask(self.url, self.work.bodies, self.work.seconds, clients=count)).achieved
            print(f"{self.name}: {self.closed[count]:,.1f} pairs/s with {count} clients")

    def measure(self, loads: Sequence[float], bound: float) -> None:
        """Offer the loads, then search for the highest one within the bound."""
        print(f"\n{self.name:<26}{HEADER}")
        for pairs in sorted(pairs for pairs in loads if pairs < OVERLOAD * self.saturation):
            self._offer(pairs)
        found = sorted((point.offered, is_carried(point, bound)) for point in self.points)
        high = next((offered for offered, carried in found if not carried), math.inf)
        self.carried = max((offered for offered, _ in found if offered < high), default=0.0)
        for _ in range(TRIES):
            # Possibly beyond saturation, which is a measurement too and may be too low.
            point = self._offer((self.carried + high) / 2 if high < math.inf else OVERLOAD * self.carried)
            if is_carried(point, bound):
                self.carried = point.offered
            else:
                high = point.offered
        print()

    def facts(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        figures = {"saturation": self.saturation, "closed": self.closed, "carried": self.carried}
        return {"name": self.name, **figures, "points": [asdict(point) for point in self.points]}

    def _offer(self, pairs: float) -> Point:
        rate = pairs / self.work.pairs_per_request
        self.points.append(figures(ask(self.url, self.work.bodies, self.work.seconds, rates=[rate])))
        print(f"{'':<26}{self.points[-1].row()}", flush=True)
        return self.points[-1]


def is_carried(found: Point, bound: float) -> bool:
    """Return whether no request failed and p95 is within the bound."""
    return not found.failures and found.p95 <= bound


def main() -> None:
    """Measure the baseline, then the endpoint in alternation with its scorer and under load, and print the figures."""
    arguments = parsed()
    # On SIGTERM, exit normally, so that all started processes are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as folder:
        work = build_work(arguments, Path(folder), tuple(arguments.passages), arguments.repeated, arguments.encoder)
        peer, int8 = "ONNX Runtime" if arguments.int8_peer else "CrossEncoder", arguments.int8_peer
        with running(work.model, ONE, int8) as one, running(work.model, FASTAPI, int8) as many:
            theirs = better(arguments, [Side(f"{peer}, one at once", one, work), Side(f"{peer}, threads", many, work)])
            scores = first_scores(theirs)
            bound = 2 * figures(ask(theirs.url, work.bodies, work.seconds, clients=1)).p50
            theirs.measure(theirs.shares, bound)
        with endpoint(settings(arguments, work)) as url:
            ours = better(arguments, [Side("rayrank", url, work)])
            alike = np.corrcoef(scores, first_scores(ours))[0, 1]
            assert alike > (MIN_INT8_CORRELATION if int8 else MIN_CORRELATION), (
                f"the servers' scores correlate by {alike:.3f} only"
            )
            turns = in_turns(arguments, ours)
            ours.measure([*ours.shares, *theirs.shares], bound)
    report(arguments, ours, theirs, bound, turns)


def parsed() -> argparse.Namespace:
    """Return the command-line options."""
    # A GPU scores thousands of pairs at once, so it needs more clients to be saturated.
    clients = [32, 128] if torch.cuda.is_available() else [2, 8, 32]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, texts are generated"
    )
    options.add_argument(
        "--backend", choices=("torch", "onnx-int8", "torch-fp8"), help="default: onnx-int8 on a CPU, torch on a GPU"
    )
    options.add_argument(
        "--int8-peer", action="store_true", help="baseline: ONNX Runtime in int8 instead of CrossEncoder"
    )
    options.add_argument("--pairs", type=int, default=3000, help="pairs of all requests together")
    options.add_argument("--encoder", choices=ENCODERS, default="minilm")
    options.add_argument(
        "--passages", type=int, nargs=2, default=[20, 50], help="minimum and maximum passages of a request"
    )
    options.add_argument("--ingress", type=int, default=1, help="ingress replicas of rayrank")
    options.add_argument("--repeated", type=float, default=0, help="share of passages that all requests contain")
    options.add_argument("--seconds", type=float, default=20, help="duration of each load")
    options.add_argument(
        "--clients",
        type=int,
        nargs="+",
        default=clients,
        help="numbers of concurrent clients; the best one gives the saturation",
    )
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of each server's scorer on a CPU")
    options.add_argument("--turns", type=int, default=5, help="rounds of the scorer alone and the endpoint")
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--plot", metavar="FILE", help="write a plot as PNG")
    arguments = options.parse_args()
    arguments.backend = arguments.backend or ("torch" if torch.cuda.is_available() else "onnx-int8")
    torch.set_num_threads(arguments.threads)
    # Also for the baseline's process.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    return arguments


def better(arguments: argparse.Namespace, sides: Sequence[Side]) -> Side:
    """Saturate the servers one after the other, and return the one with the highest throughput."""
    for side in sides:
        # Warm-up, so that compilation is not measured.
        first_scores(side)
        side.saturate(arguments.clients)
    return max(sides, key=lambda side: side.saturation)


def first_scores(side: Side) -> list[float]:
    """Return the scores of the first requests, in the order of their texts."""
    found: list[float] = []
    for body in Path(side.work.bodies).read_text().split("\n")[:COMPARED]:
        answer = httpx.post(side.url, content=body, headers={"Content-Type": "application/json"}, timeout=120)
        ranks = sorted(answer.raise_for_status().json(), key=lambda rank: rank["index"])
        found += [rank["score"] for rank in ranks]
    return found


def in_turns(arguments: argparse.Namespace, ours: Side) -> list[tuple[float, float]]:
    """Return pairs per second of the scorer alone and of the endpoint, in alternation."""
    clients, score = max(ours.closed, key=ours.closed.__getitem__), lone_scorer(arguments, ours.work)
    found = []
    for _ in range(arguments.turns):
        started, count = time.perf_counter(), 0
        while time.perf_counter() < started + ours.work.seconds:
            count += score()
        lone = count / (time.perf_counter() - started)
        over_http = figures(ask(ours.url, ours.work.bodies, ours.work.seconds, clients=clients)).achieved
        print(f"the scorer alone: {lone:,.1f} pairs/s; then over HTTP: {over_http:,.1f}", flush=True)
        found.append((lone, over_http))
    return found


def lone_scorer(arguments: argparse.Namespace, work: Work) -> Callable[[], int]:
    """Return a function that scores all pairs once, and returns their number."""
    ours = load(work.model, arguments.backend)
    if torch.cuda.is_available():
        compile_for_scoring(ours.model.cuda(), arguments.backend == "torch-fp8")
    scorer = scorer_of(ours, pair_texts(ours, work.pairs.queries, work.pairs.passages))
    rows = np.arange(len(work.pairs.queries))
    scorer(rows[:50], rows[:50])
    return lambda: len(scorer(rows, rows))


def settings(arguments: argparse.Namespace, work: Work) -> dict[str, Any]:
    """Return the settings of the endpoint: one replica, and a cache for the passages of about four requests."""
    on_gpu = torch.cuda.is_available()
    return {
        "model": work.model,
        "backend": arguments.backend,
        "resources": {
            "cpus": 1 if on_gpu else arguments.threads,
            "gpus": int(on_gpu),
            "ingress": arguments.ingress,
        },
        "batching": {"cache_pieces": 4 * arguments.passages[1] * (LENGTH + ENTRY_OVERHEAD)},
    }


def report(
    arguments: argparse.Namespace, ours: Side, theirs: Side, bound: float, turns: list[tuple[float, float]]
) -> None:  # fmt: skip
    """Print the main figures, and write all of them."""
    shares = [over_http / lone for lone, over_http in turns]
    share, ratio = statistics.median(shares), ours.carried / theirs.carried if theirs.carried else math.inf
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    print(f"{len(ours.work.pairs.queries):,} pairs of {ours.work.pairs.source}, {arguments.backend}, {where}")
    spread = f"{share:.2f} ({min(shares):.2f}-{max(shares):.2f})"
    print(f"through HTTP at saturation: {spread} of the scorer alone in this process")
    print(
        f"with a p95 of at most {1000 * bound:,.0f} ms: {ours.carried:,.1f} pairs/s, "
        f"{theirs.name} {theirs.carried:,.1f}, {ratio:.2f} times as much"
    )
    print(f"the load generator took at most {max(point.cpu for point in ours.points):.0%} of a core")
    facts = {"settings": vars(arguments), "bound": bound, "in_process": [lone for lone, _ in turns]}
    facts |= {"over_http": [over_http for _, over_http in turns], "share": share, "ratio": ratio}
    facts["sides"] = [side.facts() for side in (ours, theirs)]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(facts, indent=2))
    if arguments.plot:
        Path(arguments.plot).write_bytes(load_png(facts))


if __name__ == "__main__":
    main()
