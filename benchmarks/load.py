"""A client in a process of its own that asks an endpoint for what one JSON body a line says.

    python -m benchmarks.load URL BODIES.jsonl --rates 5 20 5 --seconds 10
    python -m benchmarks.load URL BODIES.jsonl --clients 16 --seconds 10

With rates (requests a second, one step after another) it is open-loop: requests leave at random moments drawn
beforehand, whatever became of earlier ones, and latency counts from the moment that was drawn, so that waiting is never
hidden. With clients it is closed-loop: so many requests are under way all the time. Bodies are sent in turn, from the
first one on. What came of it is printed as JSON.
"""

import argparse
import asyncio
import itertools
import json
import math
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import aiohttp

PATIENCE = 30.0
"""Seconds until a client gives up; what failed, however early, counts as if it had taken these."""

NO_ANSWER = 0
"""In place of a status where none came."""


class Sample(NamedTuple):
    """One request."""

    due: float
    """When it was to leave, in seconds from the start."""
    seconds: float
    """From then to the end of the answer."""
    pairs: int
    status: int

    @property
    def is_answered(self) -> bool:
        """Whether scores came."""
        return self.status == 200

    @property
    def latency(self) -> float:
        """The seconds that count."""
        return self.seconds if self.is_answered else PATIENCE


class Load(NamedTuple):
    """What a client saw."""

    started: float
    """Time of day."""
    seconds: float
    """How long it asked; answers may come later."""
    cpu: float
    """Share of a core that the client took."""
    samples: list[Sample]


@dataclass(frozen=True)
class Point:
    """A load in figures."""

    offered: float
    """Pairs a second that were asked for."""
    achieved: float
    """Pairs a second that were answered, up to the last answer."""
    p50: float
    p95: float
    p99: float
    num_requests: int
    failures: dict[int, int]
    """How many requests ended with which status; 0 is none at all."""
    cpu: float

    def row(self) -> str:
        """Return the figures for a table under `HEADER`."""
        failures = ", ".join(f"{count} x {status or 'no answer'}" for status, count in self.failures.items())
        latencies = "".join(f"{1000 * value:>9,.0f}" for value in (self.p50, self.p95, self.p99))
        return f"{self.offered:>10,.1f}{self.achieved:>10,.1f}{latencies}{self.num_requests:>10,}  {failures or 'none'}"


HEADER = f"{'offered':>10}{'achieved':>10}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'requests':>10}  failures"


def ask(url: str, bodies: str, seconds: float, rates: Sequence[float] = (), clients: int = 0) -> Load:
    """Let a client of its own process ask, and return what it saw; it is ended with whoever waits for it."""
    how = ["--rates", *map(str, rates)] if rates else ["--clients", str(clients)]
    command = [sys.executable, "-m", "benchmarks.load", url, bodies, "--seconds", str(seconds), *how]
    # In a group of its own: Ctrl-C is the waiting side's, which then ends it.
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, process_group=0)
    seen = json.loads(done.stdout)
    return Load(**seen | {"samples": [Sample(*row) for row in seen["samples"]]})


def figures(load: Load) -> Point:
    """Return figures over all of a load."""
    samples = load.samples
    latencies = sorted(sample.latency for sample in samples)
    answered = [sample for sample in samples if sample.is_answered]
    # Answers come on when nothing is asked any more; many at once, so that a look in between would count by chance.
    ended = max([load.seconds, *(sample.due + sample.seconds for sample in answered)])
    return Point(
        offered=sum(sample.pairs for sample in samples) / load.seconds,
        achieved=sum(sample.pairs for sample in answered) / ended,
        p50=percentile(latencies, 0.5),
        p95=percentile(latencies, 0.95),
        p99=percentile(latencies, 0.99),
        num_requests=len(samples),
        failures=dict(Counter(sample.status for sample in samples if not sample.is_answered)),
        cpu=load.cpu,
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the least value that this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def main() -> None:
    """Ask, and print what was seen."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url")
    options.add_argument("bodies", help="a file with one JSON body a line")
    options.add_argument("--seconds", type=float, default=10, help="of all, or of each rate")
    how = options.add_mutually_exclusive_group(required=True)
    how.add_argument("--rates", type=float, nargs="+", default=(), help="requests a second")
    how.add_argument("--clients", type=int, default=0, help="requests under way at any time")
    print(json.dumps(asyncio.run(_ask(options.parse_args()))._asdict()))


async def _ask(arguments: argparse.Namespace) -> Load:
    lines = Path(arguments.bodies).read_bytes().splitlines()
    bodies = itertools.cycle([(line, len(json.loads(line)["texts"])) for line in lines])
    # Servers close idle connections after 5 seconds; a request must not meet that.
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
    patience = aiohttp.ClientTimeout(total=PATIENCE)
    async with aiohttp.ClientSession(connector=connector, timeout=patience) as session:
        client = _Client(session, arguments.url, bodies)
        started = time.time()
        if arguments.rates:
            await client.open_loop(_moments(arguments.rates, arguments.seconds))
        else:
            await client.closed_loop(arguments.clients, arguments.seconds)
        took = time.time() - started
    seconds = arguments.seconds * max(1, len(arguments.rates))
    return Load(started, seconds, time.process_time() / took, client.samples)


def _moments(rates: Sequence[float], seconds: float) -> list[float]:
    """Return when requests leave: as a Poisson process, but in exactly the number that a rate says."""
    rng = random.Random(13)
    return [
        moment
        for step, rate in enumerate(rates)
        for moment in sorted(seconds * (step + rng.random()) for _ in range(max(1, round(rate * seconds))))
    ]


class _Client:
    """Sends bodies in turn and notes what came of them."""

    def __init__(self, session: aiohttp.ClientSession, url: str, bodies: Iterator[tuple[bytes, int]]) -> None:
        self._session, self._url, self._bodies = session, url, bodies
        self._start = time.perf_counter()
        self.samples: list[Sample] = []

    async def open_loop(self, moments: Sequence[float]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for due in moments:
                await asyncio.sleep(due - self._now())
                tasks.create_task(self._send(due))

    async def closed_loop(self, clients: int, seconds: float) -> None:
        async def one() -> None:
            while (now := self._now()) < seconds:
                await self._send(now)

        await asyncio.gather(*(one() for _ in range(clients)))

    async def _send(self, due: float) -> None:
        body, pairs = next(self._bodies)
        try:
            headers = {"Content-Type": "application/json"}
            async with self._session.post(self._url, data=body, headers=headers) as response:
                await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError):
            status = NO_ANSWER
        self.samples.append(Sample(due, self._now() - due, pairs, status))

    def _now(self) -> float:
        return time.perf_counter() - self._start


if __name__ == "__main__":
    main()
