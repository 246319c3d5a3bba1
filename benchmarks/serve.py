"""The endpoint under load, beside the same model behind FastAPI and CrossEncoder: one machine, the same requests.

    python -m benchmarks.serve [--encoder minilm] [--backend onnx-int8] [--passages 20 50] [--seconds 20] [--json FILE]

The model is MiniLM-L6 with a fresh head, or of BERT-large's shape, with plain attention, since CrossEncoder has no
other. A request has a query and 20 to 50 passages; a client in a process of its own (`benchmarks.load`) sends one after
another. First each server is asked by so many clients at a time that it is never idle. That is its saturation, and ours
takes turns with the scorer in this process, which gets the same pairs as ids. Then it is offered loads, and at last the
highest one is looked for that it carries with a p95 under a bound: twice what the peer takes for a request that is
alone. The peer scores as many requests at once as suits it better, one or FastAPI's 40; with --int8-peer it does so by
ONNX Runtime in eight bits. The endpoint's cache is too small to find a passage again, except those that --repeated asks
for.
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

from benchmarks.endpoint import LENGTH, Work, endpoint, made_work
from benchmarks.load import HEADER, Point, ask, figures
from benchmarks.load_plot import load_png
from benchmarks.made import ENCODERS
from benchmarks.peer_server import running
from rayrank.bundle.export import load
from rayrank.bundle.text_scorer import pair_texts, scorer_of
from rayrank.models.inference.scorer import hasten
from serve.piece_cache import ENTRY_OVERHEAD

SHARES = (0.3, 0.5, 0.7, 0.8, 0.9)
"""Of its saturation that a server is offered; ours is offered the peer's loads too."""

OVERLOAD = 1.2
"""Times its saturation, which no server carries for long; and the step to the next load where all were carried."""

TRIES = 4
"""Loads more in search of the highest one that is carried."""

COMPARED = 8
"""Requests whose scores by both servers must be alike."""

LEAST_ALIKE, BOTH_ROUNDED = 0.98, 0.95
"""Correlation of their scores, and where both servers round to eight bits, each in its own way."""

ONE, FASTAPI = 1, 40
"""Requests that the peer scores at once."""


@dataclass
class Side:
    """A server and its figures, all in pairs a second."""

    name: str
    url: str
    work: Work
    closed: dict[int, float] = field(default_factory=dict)
    """By the number of clients that are always asking."""
    points: list[Point] = field(default_factory=list)
    carried: float = 0.0
    """With a p95 under the bound."""

    @property
    def saturation(self) -> float:
        """The most."""
        return max(self.closed.values())

    @property
    def shares(self) -> list[float]:
        """Loads from light to heavy."""
        return [share * self.saturation for share in SHARES]

    def saturate(self, clients: Sequence[int]) -> None:
        """Ask with ever more clients at a time."""
        for count in clients:
            self.closed[count] = figures(ask(self.url, self.work.bodies, self.work.seconds, clients=count)).achieved
            print(f"{self.name}: {self.closed[count]:,.1f} pairs/s with {count} clients")

    def measure(self, loads: Sequence[float], bound: float) -> None:
        """Offer loads, and then others in search of the highest one that is carried."""
        print(f"\n{self.name:<26}{HEADER}")
        for pairs in sorted(pairs for pairs in loads if pairs < OVERLOAD * self.saturation):
            self._offer(pairs)
        found = sorted((point.offered, is_carried(point, bound)) for point in self.points)
        high = next((offered for offered, carried in found if not carried), math.inf)
        self.carried = max((offered for offered, _ in found if offered < high), default=0.0)
        for _ in range(TRIES):
            # Beyond its saturation, if need be: that was measured too, and may have come out too low.
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
    """Return whether all requests were answered, and nearly all in time."""
    return not found.failures and found.p95 <= bound


def main() -> None:
    """Measure the peer, then the endpoint in turns with its scorer, then both under load, and print what came of it."""
    arguments = parsed()
    # Ended from outside, everything that was started is to be ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as folder:
        work = made_work(arguments, Path(folder), tuple(arguments.passages), arguments.repeated, arguments.encoder)
        peer, int8 = "ONNX Runtime" if arguments.int8_peer else "CrossEncoder", arguments.int8_peer
        with running(work.model, ONE, int8) as one, running(work.model, FASTAPI, int8) as many:
            theirs = better(arguments, [Side(f"{peer}, one at once", one, work), Side(f"{peer}, threads", many, work)])
            scores = first_scores(theirs)
            bound = 2 * figures(ask(theirs.url, work.bodies, work.seconds, clients=1)).p50
            theirs.measure(theirs.shares, bound)
        with endpoint(settings(arguments, work)) as url:
            ours = better(arguments, [Side("rayrank", url, work)])
            alike = np.corrcoef(scores, first_scores(ours))[0, 1]
            assert alike > (BOTH_ROUNDED if int8 else LEAST_ALIKE), f"the servers' scores correlate by {alike:.3f} only"
            turns = in_turns(arguments, ours)
            ours.measure([*ours.shares, *theirs.shares], bound)
    report(arguments, ours, theirs, bound, turns)


def parsed() -> argparse.Namespace:
    """Return the options."""
    # A GPU has thousands of pairs at a time in its hands.
    clients = [32, 128] if torch.cuda.is_available() else [2, 8, 32]
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="../shared/data/insuranceqa", help="a BEIR folder; generated if missing")
    options.add_argument(
        "--backend", choices=("torch", "onnx-int8", "torch-fp8"), help="int8 on a CPU, torch on a GPU, if empty"
    )
    options.add_argument("--int8-peer", action="store_true", help="ONNX Runtime in CrossEncoder's place")
    options.add_argument("--pairs", type=int, default=3000, help="of all requests together")
    options.add_argument("--encoder", choices=ENCODERS, default="minilm")
    options.add_argument("--passages", type=int, nargs=2, default=[20, 50], help="of a request, at least and at most")
    options.add_argument("--ingress", type=int, default=1, help="replicas of ours that speak HTTP")
    options.add_argument("--repeated", type=float, default=0, help="share of a request's passages that all have")
    options.add_argument("--seconds", type=float, default=20, help="of each load")
    options.add_argument("--clients", type=int, nargs="+", default=clients, help="numbers, of which the best saturates")
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="of each side's scorer, on a CPU")
    options.add_argument("--turns", type=int, default=5, help="of the scorer alone and the endpoint")
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--plot", metavar="FILE", help="a PNG")
    arguments = options.parse_args()
    arguments.backend = arguments.backend or ("torch" if torch.cuda.is_available() else "onnx-int8")
    torch.set_num_threads(arguments.threads)
    # The peer's process has as many.
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    return arguments


def better(arguments: argparse.Namespace, sides: Sequence[Side]) -> Side:
    """Saturate servers one after the other, and return the one with the most pairs a second."""
    for side in sides:
        # What compiles, compiles before anything counts.
        first_scores(side)
        side.saturate(arguments.clients)
    return max(sides, key=lambda side: side.saturation)


def first_scores(side: Side) -> list[float]:
    """Return the scores of the first requests, in their order."""
    found: list[float] = []
    for body in Path(side.work.bodies).read_text().split("\n")[:COMPARED]:
        answer = httpx.post(side.url, content=body, headers={"Content-Type": "application/json"}, timeout=120)
        ranks = sorted(answer.raise_for_status().json(), key=lambda rank: rank["index"])
        found += [rank["score"] for rank in ranks]
    return found


def in_turns(arguments: argparse.Namespace, ours: Side) -> list[tuple[float, float]]:
    """Return pairs a second of the scorer alone in this process and over HTTP, minute by minute: machines change."""
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
    """Return what scores all pairs once, and says how many they are."""
    ours = load(work.model, arguments.backend)
    if torch.cuda.is_available():
        hasten(ours.model.cuda(), arguments.backend == "torch-fp8")
    scorer = scorer_of(ours, pair_texts(ours, work.pairs.queries, work.pairs.passages))
    rows = np.arange(len(work.pairs.queries))
    scorer(rows[:50], rows[:50])
    return lambda: len(scorer(rows, rows))


def settings(arguments: argparse.Namespace, work: Work) -> dict[str, Any]:
    """Return those of the endpoint: one replica, and a cache of a few requests."""
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
    """Print what the benchmark is for, and write all facts."""
    shares = [over_http / lone for lone, over_http in turns]
    share, ratio = statistics.median(shares), ours.carried / theirs.carried if theirs.carried else math.inf
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else f"{torch.get_num_threads()} threads"
    print(f"{len(ours.work.pairs.queries):,} pairs of {ours.work.pairs.source}, {arguments.backend}, {where}")
    spread = f"{share:.2f} ({min(shares):.2f}-{max(shares):.2f})"
    print(f"through HTTP at saturation: {spread} of the scorer alone in this process, right before")
    print(
        f"with a p95 of at most {1000 * bound:,.0f} ms: {ours.carried:,.1f} pairs/s, "
        f"{theirs.name} {theirs.carried:,.1f}, {ratio:.2f} times as many"
    )
    print(f"the client took at most {max(point.cpu for point in ours.points):.0%} of a core")
    facts = {"settings": vars(arguments), "bound": bound, "in_process": [lone for lone, _ in turns]}
    facts |= {"over_http": [over_http for _, over_http in turns], "share": share, "ratio": ratio}
    facts["sides"] = [side.facts() for side in (ours, theirs)]
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(facts, indent=2))
    if arguments.plot:
        Path(arguments.plot).write_bytes(load_png(facts))


if __name__ == "__main__":
    main()
