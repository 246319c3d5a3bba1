"""Replicas that come and go with the load: it steps up and down again, and is watched from outside.

    python -m benchmarks.autoscaling [--steps 0.3 1.5 0.3] [--seconds 60] [--json FILE] [--plot FILE]

The endpoint starts with one replica of MiniLM-L6 and may have three, each with one thread. What one carries is measured
first, by as few clients as give no reason for a second one; the steps are shares of that. Above 1 a lone replica falls
behind; how far others help depends on the cores that there are for them. Requests leave at random moments, from a
client in a process of its own, and latency counts from when they were due.
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

from benchmarks.endpoint import Work, endpoint, made_work
from benchmarks.load import Load, Sample, ask, figures, percentile
from benchmarks.load_plot import autoscaling_png

SIZES = (4, 12)
"""Passages of a request: few, so that every second has some requests to be judged by."""

TARGET = 2
"""Requests in the hands of a replica that is busy enough."""

CORES = 0.5
"""That Ray sets aside for a replica, so that three fit on two cores; it has one thread all the same."""

KINDS = ("RUNNING", "STARTING")
OFTEN = 0.25
"""Seconds between two looks at the replicas."""


@dataclass(frozen=True)
class Replicas:
    """How many replicas of the model there are at a time of day."""

    time: float
    running: int
    asked: int
    """With those that are starting."""


def main() -> None:
    """Run the steps and print when replicas came and went."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="../shared/data/insuranceqa", help="a BEIR folder; generated if missing")
    options.add_argument("--backend", choices=("torch", "onnx-int8"), default="onnx-int8")
    options.add_argument("--pairs", type=int, default=3000, help="of all requests together")
    options.add_argument("--steps", type=float, nargs="+", default=[0.3, 1.5, 0.3], help="shares of what one carries")
    options.add_argument("--seconds", type=float, default=60, help="of a step")
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--plot", metavar="FILE", help="a PNG")
    arguments = options.parse_args()
    # Ended from outside, everything that was started is to be ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    with tempfile.TemporaryDirectory() as folder:
        work = made_work(arguments, Path(folder), SIZES)
        with endpoint(settings(arguments, work)) as url:
            alone = figures(ask(url, work.bodies, 10, clients=TARGET)).achieved / work.pairs_per_request
            rates = [share * alone for share in arguments.steps]
            with watched() as replicas:
                seen = ask(url, work.bodies, arguments.seconds, rates)
    report(arguments, alone, seen, replicas)


def settings(arguments: argparse.Namespace, work: Work) -> dict[str, Any]:
    """Return those of an endpoint that scales within seconds, in both directions."""
    return {
        "model": work.model,
        "backend": arguments.backend,
        "scaling": {"min": 1, "max": 3, "target": TARGET, "upscale_delay_s": 1, "downscale_delay_s": 10},
        "resources": {"cpus": CORES},
    }


@contextmanager
def watched() -> Iterator[list[Replicas]]:
    """Yield a list that grows as long as somebody is inside."""
    found: list[Replicas] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(OFTEN):
            states = serve.status().applications["default"].deployments["Ranker"].replica_states
            running, starting = (sum(states[name] for name in states if name == kind) for kind in KINDS)
            found.append(Replicas(time.time(), running, running + starting))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def report(arguments: argparse.Namespace, alone: float, seen: Load, replicas: list[Replicas]) -> None:
    """Print what came and went, a row a step, and write all facts."""
    print(f"one replica alone: {alone:.1f} requests/s")
    before = None
    for sample in replicas:
        if before != (now := (sample.running, sample.asked)):
            print(f"{sample.time - seen.started:>7.1f} s: {sample.running} running, {sample.asked} asked for")
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
    """Return the figures of the requests that were due in a second, and how many were answered in it."""
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
