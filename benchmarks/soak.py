"""Many short stages while drivers, workers and nodes are killed at random: does all work end, and what is left of it?

    python -m benchmarks.soak [--stages 200] [--seed 7] [--every 30] [--json FILE]

A head and two nodes of one core each run on this machine. One driver makes the stages of a tiny generated corpus in
order: corpora, indexes, BM25 searches, vectors, evaluations, and a training as every 20th stage. Every 30 seconds on
average (`--every`) something is killed with signal 9: the driver, which is started again and goes on where it was; a
worker process; or a node with all its processes, which a new node replaces. The last stage is not disturbed. The table
has the number of kills, and what is left at the end; every number below `left` must be 0.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.local_nodes import Commits, Driver, LocalNodes, of_node, running, title
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.drafts import drafts

SUBJECTS, CYCLE = 20, 20
ENCODER = "package:rayrank.data.sources.demo/encoder"
SETTINGS = [
    f"dataset.demo.subjects={SUBJECTS}", f"dense.encoder={ENCODER}", "runs.bm25.partition_queries=10",
    "dense.partition_texts=20", "training.dev_queries=5", "resources.train_cpus=1", "resources.checkpoint_steps=5",
]  # fmt: skip
OF_RAY = ("ActorLocationTracker", "_AutoscalingCoordinatorActor", "_StatsActor", "_UsageCollectionActor")
"""Actors that Ray Data starts once for a cluster, and that Ray keeps until the cluster ends."""

LONGEST = 600.0
"""Seconds without a new stage after which the soak gives up."""

SETTLED = 90.0
"""Seconds that Ray has at the end to end the actors of killed drivers."""


def stage(number: int) -> tuple[str, list[str]]:
    """Return a node of the flow, and the settings that let no other stage make the same artifact."""
    turn = number % CYCLE
    if turn == 10:
        return "pretrain", ["pretrain.max_steps=10", "pretrain.epochs=9", f"pretrain.lr={1e-4 + number * 1e-8:.8f}"]
    kinds: list[tuple[str, str]] = [
        ("evaluate", f"evaluate.resamples={200 + number}"), ("corpus", f"text.passage_pieces={100 + number}"),
        ("embeddings", f"dense.length={32 + number}"), ("bm25", f"runs.bm25.k1={0.5 + number / 1000}"),
        ("corpus", f"text.query_pieces={40 + number}"),
    ]  # fmt: skip
    name, setting = ("index", f"text.passage_pieces={600 + number}") if turn in (4, 14) else kinds[number % len(kinds)]
    return name, [setting, *(["evaluate.run=bm25"] if name == "evaluate" else [])]


def configured(settings: list[str]) -> PipelineConfig:
    """Return the configuration of a stage."""
    from rayrank.jobs.entry import configure, parser

    chosen = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    return configure(parser("").parse_args(["--preset", "demo", "--dataset", "demo", *chosen]))


def drive(storage: str, stages: int) -> None:
    """Make all stages, with their inputs; those that exist are free."""
    from rayrank.cluster.every_node import check_shared
    from rayrank.stages.make import make

    store = Store(storage)
    check_shared(store.root)
    for number in range(stages):
        name, settings = stage(number)
        config = configured(settings)
        for node in flow.plan(name, config):
            make(node, config, store)
        (Path(storage) / "logs").mkdir(exist_ok=True)
        (Path(storage) / "logs" / "done").write_text(str(number + 1))


def left_on_the_cluster() -> dict[str, int]:
    """Return the actors, and the placement groups, that no job of the cluster uses any more; run in a new driver."""
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False)
    found = [each["ActorClassName"] for each in ray._private.state.actors().values() if each["State"] != "DEAD"]
    actors = [name for name in found if name not in OF_RAY]
    groups = [each for each in ray.util.placement_group_table().values() if each["state"] != "REMOVED"]
    return {"actors": len(actors), "placement groups": len(groups), **Counter(f"actor {name}" for name in actors)}


def left_on_storage(storage: Path) -> dict[str, int]:
    """Return what killed processes have left on storage."""
    indexes = [(Artifact(str(storage), each.parts[-3], each.parts[-2]), each) for each in storage.glob("*/*/lucene-*")]
    unnamed = [each for index, each in indexes if not index.exists() or index.manifest["lucene"] != each.name]
    return {
        "locks": len(list(storage.glob("*/*/lease-*"))),
        "drafts": len(drafts(*Artifact(str(storage), "", "").place)),
        "copies of indexes": len(unnamed),
        "checkpoints": len(list(storage.glob("*/*/checkpoints"))),
        "probes": len(list(storage.glob(".nodes.*"))) + len(list(storage.glob(".writable*"))),
        "unfinished artifacts": sum(
            not (folder / "manifest.json").exists() for folder in storage.glob("*/*") if folder.is_dir()
        ),
    }


class Soak:
    """The driver, the kills, and their counts."""

    def __init__(self, folder: Path, stages: int, seed: int, every: float) -> None:
        self._folder, self._stages, self._random, self._every = folder, stages, random.Random(seed), every
        self.storage = folder / "storage"
        self.storage.mkdir()
        self._temporary = folder / "tmp"
        self._nodes = LocalNodes(2, self._temporary)
        self._commits = Commits(self.storage)
        self.kills: Counter[str] = Counter()
        self.faults = 0

    def run(self) -> dict[str, Any]:
        """Run all stages and return the counts."""
        started = time.monotonic()
        try:
            self._nodes.start()
            while self._done() < self._stages:
                with running(self._driver("--drive", str(self.storage), "--stages", str(self._stages))) as driver:
                    if not self._disturb(driver):
                        self.faults += 1
                        print(driver.said(), file=sys.stderr)
                        if self.faults > 3:
                            break
            left = self._left()
        finally:
            self._nodes.stop()
        left |= {"processes": len(self._processes())}
        return {
            "stages": self._done(), "seconds": round(time.monotonic() - started), "kills": dict(self.kills),
            "driver's own failures": self.faults, "finished twice": len(self._commits.again), "left": left,
        }  # fmt: skip

    def _done(self) -> int:
        with suppress(FileNotFoundError, ValueError):
            return int((self.storage / "logs" / "done").read_text())
        return 0

    def _driver(self, *options: str) -> Driver:
        return Driver(["benchmarks.soak", *options], self._nodes, self._folder / "driver.log")

    def _disturb(self, driver: Driver) -> bool:
        """Kill things until the driver ends; return False if it ended by a fault of its own."""
        done, changed = -1, time.monotonic()
        kill_at = changed + self._random.expovariate(1 / self._every)
        while driver.runs:
            time.sleep(0.2)
            self._commits.look()
            if self._done() != done:
                done, changed = self._done(), time.monotonic()
            if time.monotonic() - changed > LONGEST:
                raise TimeoutError(f"Nothing was made for {LONGEST:.0f} s: {driver.said()}")
            if time.monotonic() >= kill_at and done < self._stages - 1:
                kill_at = time.monotonic() + self._random.expovariate(1 / self._every)
                what = self._random.choice((self._kill_driver, self._kill_worker, self._kill_node))
                self.kills[what.__name__.removeprefix("_kill_")] += what(driver)
                if not driver.runs:
                    return True
        return driver.process.returncode == 0

    def _kill_driver(self, driver: Driver) -> int:
        driver.kill()
        return 1

    def _kill_worker(self, driver: Driver) -> int:
        names = ("MapWorker", "RayTrainWorker", "_build", "TrainController", "ray::")
        found = [one for node in self._nodes.workers() for one in of_node(node)]
        busy = [one for one in found if any(name in title(one) for name in names) and "IDLE" not in title(one)]
        if not busy:
            return 0
        with suppress(psutil.NoSuchProcess):
            self._random.choice(busy).send_signal(signal.SIGKILL)
        return 1

    def _kill_node(self, driver: Driver) -> int:
        self._nodes.kill(self._random.choice(self._nodes.workers()))
        self._nodes.add()
        return 1

    def _left(self) -> dict[str, int]:
        """Return what is left once Ray has had time to end what belonged to killed drivers."""
        until, found = time.monotonic() + SETTLED, {"actors": 1}
        while any(found.values()) and time.monotonic() < until:
            time.sleep(5)
            answer = self._folder / "left.json"
            with running(self._driver("--left", str(answer))) as driver:
                driver.process.wait(timeout=120)
            found = json.loads(answer.read_text())
        temporary = [path for path in self._temporary.rglob("*") if path.parent.name.startswith("rayrank-")]
        return {**found, **left_on_storage(self.storage), "temporary folders": len(temporary)}

    def _processes(self) -> list[str]:
        """Return the processes of this soak that still run, apart from this one."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get("TMPDIR") == str(self._temporary):
                    found.append(title(process))
        return found


def table(counts: dict[str, Any]) -> str:
    """Return the counts as lines."""
    lines = []
    for name, value in counts.items():
        lines.append(f"{name:<24}" + (f"{value:>8}" if isinstance(value, int) else ""))
        if isinstance(value, dict):
            lines += [f"  {inner:<22}{number:>8}" for inner, number in value.items()]
    return "\n".join(lines)


def main() -> None:
    """Run the soak, or one of its drivers."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--stages", type=int, default=200)
    options.add_argument("--seed", type=int, default=7, help="seed of the kills")
    options.add_argument("--every", type=float, default=30.0, help="seconds between two kills, on average")
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--drive", help=argparse.SUPPRESS)
    options.add_argument("--left", help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.drive:
        drive(arguments.drive, arguments.stages)
    elif arguments.left:
        Path(arguments.left).write_text(json.dumps(left_on_the_cluster()))
    else:
        _soak(arguments)


def _soak(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            counts = Soak(Path(folder), arguments.stages, arguments.seed, arguments.every).run()
        except KeyboardInterrupt:
            sys.exit("stopped")
    print(table(counts))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(counts, indent=2) + "\n")
    sys.exit(counts["stages"] < arguments.stages or any(counts["left"].values()) or counts["finished twice"] > 0)


if __name__ == "__main__":
    main()
