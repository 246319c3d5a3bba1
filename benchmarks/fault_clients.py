"""Concurrent clients of an endpoint around a fault, and the count of what became of their requests."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

PATIENCE_S = 180
"""Seconds after which a client gives up; no request may wait that long."""

PAUSE_S = 0.2
"""Seconds that a client waits after an answer which does not say when to come back."""

QUIET_S = 3
"""Seconds of answers only after which the endpoint counts as recovered."""

RECOVERY_S = 120
"""Seconds after which a drill ends even if the endpoint has not recovered."""


@dataclass
class Outcome:
    """What became of the requests of a drill."""

    name: str
    statuses: Counter[int] = field(default_factory=Counter)
    without_retry: int = 0
    """Refused requests without a Retry-After."""
    broken: Counter[str] = field(default_factory=Counter)
    """Requests without an answer, by the error's name."""
    longest: float = 0.0
    """The longest time in seconds that a request waited."""
    last_refusal: float = 0.0
    notes: str = ""

    def note(self, status: int, headers: Any, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        self.longest = max(self.longest, seconds)
        if status != 200:
            self.last_refusal = time.monotonic()
        if status in (429, 503) and "Retry-After" not in headers:
            self.without_retry += 1

    def note_broken(self, error: Exception, seconds: float) -> None:
        """Count a request whose connection broke."""
        self.broken[type(error).__name__] += 1
        self.longest, self.last_refusal = max(self.longest, seconds), time.monotonic()

    def row(self) -> str:
        """Return the row of the table."""
        sent = sum(self.statuses.values()) + sum(self.broken.values())
        others = {status: count for status, count in self.statuses.items() if status not in (200, 429, 503)}
        cells = [sent, self.statuses[200], self.statuses[429], self.statuses[503], sum(others.values())]
        numbers = "".join(f"{cell:>8,}" for cell in [*cells, self.without_retry, sum(self.broken.values())])
        notes = "; ".join([*([f"others: {others}"] if others else []), self.notes])
        return f"{self.name:<18}{numbers}{self.longest:>9.1f} s  {notes}"


HEADER = f"{'drill':<18}" + "".join(
    f"{name:>8}" for name in ("sent", "200", "429", "503", "others", "no hint", "broken")
)


class Clients:
    """Concurrent clients, each of which sends its next request when its last one is answered."""

    def __init__(self, url: str, body: bytes, outcome: Outcome, headers: dict[str, str] | None = None) -> None:
        self._url, self._body, self._outcome = url, body, outcome
        self._headers = {"Content-Type": "application/json", **(headers or {})}
        self._stop = asyncio.Event()

    async def during(self, count: int, fault: Callable[[], Any]) -> float:
        """Let the clients run, cause the fault after five seconds, and return the seconds until recovery."""
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=3)
        async with aiohttp.ClientSession(connector=connector, headers=self._headers) as session:
            running = [asyncio.create_task(self._run(session)) for _ in range(count)]
            await asyncio.sleep(5)
            began = time.monotonic()
            self._outcome.last_refusal = began
            await asyncio.to_thread(fault)
            while time.monotonic() < began + RECOVERY_S:
                await asyncio.sleep(0.2)
                if time.monotonic() > max(began + 15, self._outcome.last_refusal) + QUIET_S:
                    break
            self._stop.set()
            await asyncio.gather(*running)
        return max(0.0, self._outcome.last_refusal - began)

    async def _run(self, session: aiohttp.ClientSession) -> None:
        while not self._stop.is_set():
            pause = await send(session, self._url, self._body, self._outcome)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)


async def send(session: aiohttp.ClientSession, url: str, body: Any, outcome: Outcome) -> float:
    """Send one request, count its outcome, and return how many seconds to wait before the next, as clients do."""
    began = time.monotonic()
    try:
        async with session.post(url, data=body, timeout=aiohttp.ClientTimeout(total=PATIENCE_S)) as response:
            await response.read()
            outcome.note(response.status, response.headers, time.monotonic() - began)
            if response.status == 200:
                return 0
            return float(response.headers.get("Retry-After", PAUSE_S))
    except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
        outcome.note_broken(error, time.monotonic() - began)
        return PAUSE_S
