"""A load generator: sends the JSON bodies of a file, one per line, to an endpoint.

    python -m rayrank.capacity.load URL BODIES.jsonl --rates 5 20 5 --seconds 10
    python -m rayrank.capacity.load URL BODIES.jsonl --clients 16 --seconds 10

With --rates (requests per second, one step after another) the load is open-loop: requests are sent at random times that
are scheduled in advance, whether or not earlier ones are answered, and latency counts from the scheduled time, so that
it includes all waiting. With --clients the load is closed-loop: each client sends its next request when its last one is
answered. Bodies are sent in the order of the file, again and again; each <number> in one is replaced by another number.
The measurements are printed as JSON. An API key is read from the environment variable RAYRANK_LOAD_KEY.
"""

import argparse
import asyncio
import itertools
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

PATIENCE = 30.0
"""Timeout of a request in seconds; a failed request counts with this latency."""

KEY = "RAYRANK_LOAD_KEY"
"""The environment variable with the API key: other users of the machine can read a command line."""

NUMBER = "<number>"
"""Placeholder in a request's body, replaced by a new number whenever the body is sent. The endpoint caches the word
pieces of a text, so the same text sent again would not be tokenised; one that begins with another number is."""

NO_ANSWER = 0
"""The status of a request without an answer."""


class Sample(NamedTuple):
    """The measurement of one request."""

    due: float
    """The scheduled time, in seconds from the start."""
    seconds: float
    """Seconds from the scheduled time to the end of the answer."""
    pairs: int
    status: int

    @property
    def is_answered(self) -> bool:
        """Whether the request got scores."""
        return self.status == 200

    @property
    def latency(self) -> float:
        """Latency in seconds; the timeout for a failed request."""
        return self.seconds if self.is_answered else PATIENCE


class Load(NamedTuple):
    """The measurements of one load."""

    started: float
    """Wall-clock time of the start."""
    seconds: float
    """Seconds in which requests were sent; answers may arrive later."""
    cpu: float
    """Cores that the load generator used."""
    samples: list[Sample]


@dataclass(frozen=True)
class Point:
    """The figures of one load."""

    offered: float
    """Pairs per second that were sent."""
    achieved: float
    """Pairs per second that were answered, until the last answer."""
    p50: float
    p95: float
    p99: float
    num_requests: int
    failures: dict[int, int]
    """Number of failed requests by status; 0 means no answer."""
    cpu: float

    def row(self) -> str:
        """Return a row of the table with the header `HEADER`."""
        failures = ", ".join(f"{count} x {status or 'no answer'}" for status, count in self.failures.items())
        latencies = "".join(f"{1000 * value:>9,.0f}" for value in (self.p50, self.p95, self.p99))
        return f"{self.offered:>10,.1f}{self.achieved:>10,.1f}{latencies}{self.num_requests:>10,}  {failures or 'none'}"


HEADER = f"{'offered':>10}{'achieved':>10}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}{'requests':>10}  failures"


def ask(
    url: str, bodies: str, seconds: float, rates: Sequence[float] = (), clients: int = 0, key: str = ""
) -> Load:  # fmt: skip
    """Run the load generator in its own process, and return its measurements."""
    how = ["--rates", *map(str, rates)] if rates else ["--clients", str(clients)]
    command = [sys.executable, "-m", "rayrank.capacity.load", url, bodies, "--seconds", str(seconds), *how]
    # In its own process group: Ctrl-C reaches only the waiting process, which then ends this one.
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, process_group=0, env={**os.environ, KEY: key})
    seen = json.loads(done.stdout)
    return Load(**seen | {"samples": [Sample(*row) for row in seen["samples"]]})


def figures(load: Load) -> Point:
    """Return the figures of a load."""
    samples = load.samples
    latencies = sorted(sample.latency for sample in samples)
    answered = [sample for sample in samples if sample.is_answered]
    # Until the last answer: answers arrive in groups, so that a count at any earlier time would depend on chance.
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
    """Return the smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def main() -> None:
    """Send the requests, and print the measurements."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("url")
    options.add_argument("bodies", help="a file with one JSON body per line")
    options.add_argument("--seconds", type=float, default=10, help="duration of the load, or of each rate")
    how = options.add_mutually_exclusive_group(required=True)
    how.add_argument("--rates", type=float, nargs="+", default=(), help="requests per second")
    how.add_argument("--clients", type=int, default=0, help="number of concurrent clients")
    sys.stdout.write(json.dumps(asyncio.run(_ask(options.parse_args()))._asdict()) + "\n")


async def _ask(arguments: argparse.Namespace) -> Load:
    lines = Path(arguments.bodies).read_bytes().splitlines()
    bodies = itertools.cycle([(line.split(NUMBER.encode()), _num_passages(json.loads(line))) for line in lines])
    # Shorter than the 5 seconds after which servers close idle connections: a request must not use a closed one.
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


def _num_passages(body: dict[str, Any]) -> int:
    # Routes differ in the name of the passages.
    return len(body["texts"] if "texts" in body else body["documents"])


def _moments(rates: Sequence[float], seconds: float) -> list[float]:
    """Return the scheduled times of requests: uniformly random, with the exact number of requests for each rate."""
    rng = random.Random(13)
    return [
        moment
        for step, rate in enumerate(rates)
        for moment in sorted(seconds * (step + rng.random()) for _ in range(max(1, round(rate * seconds))))
    ]


class _Client:
    """Sends the bodies in order, and records a sample for each."""

    def __init__(self, session: aiohttp.ClientSession, url: str, bodies: Iterator[tuple[list[bytes], int]]) -> None:
        self._session, self._url, self._bodies = session, url, bodies
        # Not from 0: earlier loads have sent the same texts.
        self._numbers = itertools.count(random.randrange(10**6))
        key = os.environ.get(KEY, "")
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
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
        parts, pairs = next(self._bodies)
        body = parts[0] + b"".join(b"%d%b" % (next(self._numbers), part) for part in parts[1:])
        try:
            async with self._session.post(self._url, data=body, headers=self._headers) as response:
                await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError):
            status = NO_ANSWER
        self.samples.append(Sample(due, self._now() - due, pairs, status))

    def _now(self) -> float:
        return time.perf_counter() - self._start


if __name__ == "__main__":
    main()
