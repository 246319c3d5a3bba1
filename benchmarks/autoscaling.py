"""Autoscaling of the endpoint: number of replicas and latency while the load steps up and down again.

    python -m benchmarks.autoscaling [--steps 0.3 1.5 0.3] [--seconds 60] [--json FILE] [--plot FILE]

The endpoint starts with one replica of MiniLM-L6 and scales up to three, each with one thread. First the throughput of
one replica is measured, with so few clients that no second replica is started. Each step offers a multiple of that
throughput. Above 1, a single replica falls behind; how much further replicas help depends on the free cores. A separate
process sends the requests at random times, and latency counts from the scheduled time of a request.
"""

import argparse
import json
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ray import serve

from benchmarks.endpoint import Work, build_work, endpoint
from benchmarks.load_plot import autoscaling_png
from rayrank.capacity.load import Load, Sample, ask, figures, percentile

SIZES = (4, 12)
"""Smallest and largest number of passages of a request: few, so that each second has several requests."""

TARGET = 2
"""Ongoing requests per replica that autoscaling aims at."""

CORES = 0.5
"""Cores that Ray reserves for a replica, so that three fit on two cores; each replica has one thread."""

STATES = ("RUNNING", "STARTING")
PERIOD_S = 0.25
"""Seconds between two samples of the number of replicas."""


@dataclass(frozen=True)
class Replicas:
    """The number of replicas of the model at one time."""

    time: float
    running: int
    asked: int
    """Running and starting replicas."""


def main() -> None:
    """Offer the steps of load, and print when replicas started and stopped."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, texts are generated"
    )
    options.add_argument("--backend", choices=("torch", "onnx-int8"), default="onnx-int8")
    options.add_argument("--pairs", type=int, default=3000, help="pairs of all requests together")
    options.add_argument(
        "--steps",
        type=float,
        nargs="+",
        default=[0.3, 1.5, 0.3],
        help="load of each step, as a multiple of one replica's throughput",
    )
    options.add_argument("--seconds", type=float, default=60, help="duration of a step")
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--plot", metavar="FILE", help="write a plot as PNG")
    arguments = options.parse_args()
    # On SIGTERM, exit normally, so that all started processes are ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as folder:
        work = build_work(arguments, Path(folder), SIZES)
        with endpoint(settings(arguments, work)) as url:
            alone = figures(ask(url, work.bodies, 10, clients=TARGET)).achieved / work.pairs_per_request
            rates = [share * alone for share in arguments.steps]
            with sampled_replicas() as replicas:
                seen = ask(url, work.bodies, arguments.seconds, rates)
    report(arguments, alone, seen, replicas)


def settings(arguments: argparse.Namespace, work: Work) -> dict[str, Any]:
    """Return the settings of an endpoint that scales up and down within seconds."""
    return {
        "model": work.model,
        "backend": arguments.backend,
        "scaling": {"min": 1, "max": 3, "target": TARGET, "upscale_delay_s": 1, "downscale_delay_s": 10},
        "resources": {"cpus": CORES},
    }


@contextmanager
def sampled_replicas() -> Iterator[list[Replicas]]:
    """Yield a list to which a thread adds the number of replicas several times per second."""
    found: list[Replicas] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(PERIOD_S):
            states = serve.status().applications["default"].deployments["Ranker"].replica_states
            running, starting = (sum(states[name] for name in states if name == kind) for kind in STATES)
            found.append(Replicas(time.time(), running, running + starting))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def report(arguments: argparse.Namespace, alone: float, seen: Load, replicas: list[Replicas]) -> None:
    """Print when replicas started and stopped, and a row per step; write all figures."""
    print(f"one replica alone: {alone:.1f} requests/s")
    before = None
    for sample in replicas:
        if before != (now := (sample.running, sample.asked)):
            print(f"{sample.time - seen.started:>7.1f} s: {sample.running} running, {sample.asked} requested")
        before = now
    print(f"\n{'step':>5}{'requests/s':>12}{'p50 ms':>9}{'p95 ms':>9}{'requests':>10}  failures")
    for step, share in enumerate(arguments.steps):
        start = step * arguments.seconds
        part = [sample for sample in seen.samples if start <= sample.due < start + arguments.seconds]
        found = figures(Load(seen.started, arguments.seconds, seen.cpu, part))
        print(
            f"{share:>5g}{len(part) / arguments.seconds:>12.1f}{1000 * found.p50:>9,.0f}{1000 * found.p95:>9,.0f}"
            f"{len(part):>10,}  {found.failures or 'none'}"
        )
    facts = {
        "settings": vars(arguments),
        "alone": alone,
        "rates": [share * alone for share in arguments.steps],
        "failures": Counter(sample.status for sample in seen.samples if not sample.is_answered),
        "replicas": [asdict(sample) | {"time": sample.time - seen.started} for sample in replicas],
        "seconds": [second(seen.samples, number) for number in range(int(seen.seconds))],
    }
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(facts, indent=2))
    if arguments.plot:
        Path(arguments.plot).write_bytes(autoscaling_png(facts))


def second(samples: list[Sample], number: int) -> dict[str, Any]:
    """Return the latencies of the requests scheduled in one second, and the number of answers in that second."""
    latencies = sorted(sample.latency for sample in samples if number <= sample.due < number + 1)
    ends = [sample.due + sample.seconds for sample in samples if sample.is_answered]
    return {
        "time": number,
        "offered": len(latencies),
        "answered": sum(number <= end < number + 1 for end in ends),
        "p50": percentile(latencies, 0.5) if latencies else None,
        "p95": percentile(latencies, 0.95) if latencies else None,
    }


if __name__ == "__main__":
    main()
