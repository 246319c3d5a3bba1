"""Faults of the endpoint under load, over HTTP: how many requests were sent, and what became of each.

    python -m benchmarks.drills [DRILL ...] [--clients 16] [--json FILE]

In each drill concurrent clients send requests of ten passages without a pause, the fault occurs, and the clients go on
until the endpoint answers as before. The model is MiniLM-L6 with an untrained head, in int8. A refused request (429 or
503) must say when to come back (Retry-After), and its client waits as long; the last columns count the requests that
were not told so, those whose connection broke, and the longest that any request waited. The drills:
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import psutil

from benchmarks.endpoint import build_work, endpoint
from benchmarks.fault_clients import HEADER, Clients, Outcome, send
from benchmarks.peer_server import free_port
from rayrank.serve import app
from tests.serve.test_faults import StalledRanker


@dataclass(frozen=True)
class Ground:
    """What every drill needs."""

    model: str
    folder: Path
    body: bytes
    clients: int

    def settings(self, **changes: Any) -> dict[str, Any]:
        """Return the settings of an endpoint with one thread per replica."""
        base = {"model": self.model, "backend": "onnx-int8", "resources.cpus": 0.5, "resources.ingress": 2}
        return {**base, "scaling.patience_s": 60, **changes}


def pids(sign: str) -> list[int]:
    """Return the processes of a deployment's replicas, oldest first."""
    found = [each for each in psutil.process_iter(["cmdline", "create_time"]) if each.info["cmdline"]]
    mine = [each for each in found if " ".join(each.info["cmdline"]).startswith(f"ray::ServeReplica:default:{sign}")]
    return [each.pid for each in sorted(mine, key=lambda each: each.info["create_time"])]


def kill_first(sign: str) -> None:
    """Kill the oldest replica of a deployment."""
    os.kill(pids(sign)[0], signal.SIGKILL)


def during(ground: Ground, url: str, outcome: Outcome, fault: Callable[[], Any]) -> None:
    """Run the clients around a fault, and note how long requests were refused."""
    seconds = asyncio.run(Clients(url, ground.body, outcome).during(ground.clients, fault))
    outcome.notes += f"last refusal {seconds:.1f} s after the fault" if seconds else "no request was refused"


def stuck_scorer(ground: Ground, outcome: Outcome) -> None:
    """The scorer waits for ever inside one replica."""
    stall = ground.folder / "stall"
    app.Ranker, before = StalledRanker, app.Ranker  # type: ignore[misc]
    try:
        with endpoint(ground.settings(**{"batching.stuck_s": 5})) as url:

            def fault() -> None:
                stall.touch()
                end = time.monotonic() + 60
                while time.monotonic() < end and httpx.get(f"{url.removesuffix('/rerank')}/ready").status_code == 200:
                    time.sleep(0.2)
                stall.unlink()

            during(ground, url, outcome, fault)
    finally:
        app.Ranker = before  # type: ignore[misc]


def killed_replica(ground: Ground, outcome: Outcome) -> None:
    """One of two replicas of the model is killed."""
    with endpoint(ground.settings(**{"scaling.min": 2, "scaling.max": 2})) as url:
        during(ground, url, outcome, lambda: kill_first("Ranker"))


def only_replica(ground: Ground, outcome: Outcome) -> None:
    """The only replica of the model is killed."""
    with endpoint(ground.settings()) as url:
        during(ground, url, outcome, lambda: kill_first("Ranker"))


def killed_ingress(ground: Ground, outcome: Outcome) -> None:
    """One of two ingress replicas is killed."""
    with endpoint(ground.settings()) as url:
        during(ground, url, outcome, lambda: kill_first("Api"))


def only_ingress(ground: Ground, outcome: Outcome) -> None:
    """The only ingress replica is killed."""
    with endpoint(ground.settings(**{"resources.ingress": 1})) as url:
        during(ground, url, outcome, lambda: kill_first("Api"))


def revoked_key(ground: Ground, outcome: Outcome) -> None:
    """The clients' key is deleted from the file of keys; 401 counts among the others."""
    file = ground.folder / "keys"
    file.write_text("one # shop\ntwo # search team\n")
    with endpoint(ground.settings(keys_file=str(file))) as url:
        headers = {"Authorization": "Bearer one", "Content-Type": "application/json"}
        refused: list[float] = []

        def fault() -> None:
            file.write_text("two # search team\n")
            began = time.monotonic()
            while httpx.post(url, content=ground.body, headers=headers, timeout=60).status_code != 401:
                pass
            refused.append(time.monotonic() - began)

        asyncio.run(Clients(url, ground.body, outcome, {"Authorization": "Bearer two"}).during(ground.clients, fault))
    outcome.notes = f"the revoked key was refused after {refused[0]:.1f} s; the clients use the other key"


def full_queue(ground: Ground, outcome: Outcome) -> None:
    """300 clients send 100 passages each."""
    body = json.loads(ground.body)
    crowd = json.dumps({**body, "texts": body["texts"] * 10}).encode()
    with endpoint(ground.settings(**{"batching.queue_s": 5})) as url:
        clients = Clients(url, crowd, outcome)
        asyncio.run(clients.during(300, lambda: time.sleep(20)))
    outcome.notes = "bound of the wait: 5 s"


def slow_clients(ground: Ground, outcome: Outcome) -> None:
    """64 clients send a byte a second, while the others go on."""
    slow = Outcome("slow")

    async def dribble() -> Any:
        for byte in ground.body:
            yield bytes([byte])
            await asyncio.sleep(1)

    async def crawl(url: str) -> None:
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
            await asyncio.gather(*(send(session, url, dribble(), slow) for _ in range(64)))

    with endpoint(ground.settings()) as url:
        during(ground, url, outcome, lambda: asyncio.run(crawl(url)))
    ended = {**slow.statuses, **slow.broken}
    outcome.notes = f"the 64 slow clients ended with {ended} after at most {slow.longest:.0f} s"


def large_bodies(ground: Ground, outcome: Outcome) -> None:
    """4,096 requests of 2 MB arrive at once."""
    body = json.dumps({"query": "q", "texts": ["word " * 4_000] * 104}).encode()
    assert len(body) < 2 << 20
    peak = 0

    async def crowd(url: str) -> None:
        nonlocal peak
        headers = {"Content-Type": "application/json"}
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
            waiting = asyncio.gather(*(send(session, url, body, outcome) for _ in range(4096)))
            while not waiting.done():
                found = [psutil.Process(pid).memory_info().rss for sign in ("Api", "Ranker") for pid in pids(sign)]
                peak = max(peak, sum(found))
                await asyncio.sleep(0.5)

    with endpoint(ground.settings()) as url:
        httpx.post(url, content=ground.body, headers={"Content-Type": "application/json"}, timeout=60)
        before = sum(psutil.Process(pid).memory_info().rss for sign in ("Api", "Ranker") for pid in pids(sign))
        asyncio.run(crowd(url))
    outcome.notes = f"memory of all replicas: {before >> 20:,} MB before, at most {peak >> 20:,} MB"


def sigterm(ground: Ground, outcome: Outcome) -> None:
    """The server gets SIGTERM while the clients wait; requests after that are refused or find no server."""
    with server(ground) as (process, url):
        late = Outcome("late")

        async def wave() -> None:
            headers = {"Content-Type": "application/json"}
            async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers) as session:
                waiting = asyncio.gather(*(send(session, url, ground.body, outcome) for _ in range(ground.clients)))
                await asyncio.sleep(0.3)
                process.send_signal(signal.SIGTERM)
                await asyncio.sleep(0.3)
                await asyncio.gather(*(send(session, url, ground.body, late) for _ in range(ground.clients)))
                await waiting

        asyncio.run(wave())
        status = process.wait(60)
    outcome.notes = f"in flight: above; sent after it: {dict(late.statuses) | dict(late.broken)}; exit status {status}"


@contextmanager
def server(ground: Ground) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run the server in a process of its own."""
    port = free_port()
    command = [sys.executable, "-m", "rayrank.serve.run", "--model", ground.model, "--port", str(port)]
    process = subprocess.Popen([*command, "backend=onnx-int8"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        while process.poll() is None:
            with suppress(httpx.TransportError):
                if httpx.get(f"{url}/ready").is_success:
                    break
            time.sleep(0.5)
        yield process, f"{url}/rerank"
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        process.wait(60)


DRILLS = [
    stuck_scorer, killed_replica, only_replica, killed_ingress, only_ingress, revoked_key, full_queue, slow_clients,
    large_bodies, sigterm,
]  # fmt: skip


def main() -> None:
    """Run the drills, and print a row for each."""
    arguments = parsed()
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        work = build_work(arguments, Path(folder), (10, 10))
        body = Path(work.bodies).read_text().split("\n")[0].encode()
        ground = Ground(work.model, Path(folder), body, arguments.clients)
        print(f"{HEADER}{'longest':>11}", flush=True)
        for drill in DRILLS:
            if arguments.drills and drill.__name__ not in arguments.drills:
                continue
            outcomes.append(Outcome(drill.__name__.replace("_", " ")))
            drill(ground, outcomes[-1])
            print(outcomes[-1].row(), flush=True)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps([vars(outcome) for outcome in outcomes], indent=2))


def parsed() -> argparse.Namespace:
    """Return the command-line options."""
    about = "\n".join(f"  {drill.__name__:<16}{drill.__doc__}" for drill in DRILLS)
    options = argparse.ArgumentParser(
        description=f"{__doc__}\n{about}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("drills", nargs="*", metavar="DRILL", help="default: all of them")
    options.add_argument("--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, generated")
    options.add_argument("--clients", type=int, default=16)
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    arguments.backend, arguments.pairs, arguments.seconds = "onnx-int8", 100, 0
    return arguments


if __name__ == "__main__":
    main()
