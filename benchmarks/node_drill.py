"""Nodes of a cluster are killed in the middle of every stage: does each job end, and with the same result?

    python -m benchmarks.node_drill [--subjects 60] [--only STEP ...] [--json FILE]

A head without cores and two nodes of one core each run on this machine (`ray.cluster_utils.Cluster`). Each step is a
job in a process of its own. All steps run undisturbed on a first storage; then on a second one, where the node that
does the work of a step is killed in the middle of it, with all its processes, and a new node is added. In the last step
the head is killed with everything else, and the same command is run on a new cluster. Compared are the artifacts that a
step has made: data bit by bit, trained models by their dev metric and their weights. The last column counts artifacts
that were finished twice on the second storage.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.local_nodes import DATA, TRAINER, Commits, Driver, LocalNodes, running, wait_until
from benchmarks.same_results import Same, compared

TOO_LATE = "NOTHING, it was over"

LONGEST = 900.0
"""Seconds after which a job counts as hanging."""

ENCODER = "package:rayrank.data.sources.demo/encoder"
SETTINGS = [
    "candidates.first_stage=hybrid", f"dense.encoder={ENCODER}",
    # Small files and frequent checkpoints, so that there is a middle to kill a node in.
    "runs.bm25.partition_queries=5", "dense.partition_texts=10", "runs.dense.partition_queries=50",
    "training.dev_queries=10", "pretrain.max_steps=60", "pretrain.epochs=20", "pointwise.max_steps=60",
    "pointwise.epochs=20", "listwise.max_steps=60", "listwise.epochs=20",
    "resources.checkpoint_steps=10", "resources.train_cpus=1",
]  # fmt: skip
UNHURRIED = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1"}
"""With this environment a training waits a second at each checkpoint."""

Middle = Callable[[Path, set[Path]], bool]
"""From a storage and its finished artifacts to whether the step is in the middle of its work."""


def has_files(stage: str) -> Middle:
    """Return whether the unfinished artifact of a stage has a first file of data."""
    return lambda storage, done: any(file.parents[1] not in done for file in storage.glob(f"{stage}/*/*/*.parquet"))


def has_checkpoint(stage: str) -> Middle:
    """Return whether the unfinished model of a stage has a checkpoint that counts."""
    files = f"{stage}/*/checkpoints/checkpoint_manager_snapshot.json"
    return lambda storage, done: any(file.parents[1] not in done for file in storage.glob(files))


class Step(NamedTuple):
    """A job, and when a node is killed in it."""

    name: str
    command: list[str]
    """The module and its options."""
    worker: str = ""
    """What the name of the process contains whose node is killed; empty if none is."""
    middle: Middle = lambda storage, done: True
    kills_head: bool = False
    settings: tuple[str, ...] = ()
    """Settings of this step alone."""


PIPELINE = "jobs.run_pipeline"

STEPS = [
    Step("candidates", [PIPELINE, "--until", "bm25"], DATA, has_files("search")),
    Step("embedding", [PIPELINE, "--until", "embeddings"], DATA, has_files("embeddings")),
    Step("pre-training", [PIPELINE, "--until", "pretrain"], TRAINER, has_checkpoint("pretrain")),
    Step("pointwise", [PIPELINE, "--until", "pointwise"], TRAINER, has_checkpoint("pointwise")),
    # So few pairs are in one file, and scored in less than a second.
    Step("noise", [PIPELINE, "--until", "noise"], DATA),
    Step("listwise", [PIPELINE, "--until", "listwise"], TRAINER, has_checkpoint("listwise")),
    Step("the rest", [PIPELINE]),
    Step("sweep", ["tune.sweep", "--grid", "--parallel", "1", "--space", "SPACE"], TRAINER, has_checkpoint("listwise")),
    Step(
        "head lost", [PIPELINE, "--until", "pointwise"], TRAINER, has_checkpoint("pointwise"),
        kills_head=True, settings=("training.seed=14",),
    ),
]  # fmt: skip
SPACE = "listwise.lr: [0.0002, 0.0004]\n"
"""The file that stands for SPACE: two trials."""


@dataclass
class Outcome:
    """What became of a step."""

    step: str
    killed: str = ""
    undisturbed: float = 0.0
    seconds: float = 0.0
    ended: bool = False
    same: Same = field(default_factory=Same)
    twice: int = 0

    def is_good(self) -> bool:
        """Return whether something was killed, if it had to be, and the step had the same result all the same."""
        return self.ended and not self.twice and self.same.is_whole() and TOO_LATE not in self.killed


HEADER = f"{'step':<14}{'killed':<30}{'undisturbed':>12}{'with kill':>11}"
HEADER += f"  {'ended':<7}{'data':<10}{'models':<22}{'twice':>5}"


def row(outcome: Outcome) -> str:
    """Return the line of the table."""
    data, models = outcome.same.about_data(), outcome.same.about_models()
    ended = "yes" if outcome.ended else "NO"
    seconds = f"{outcome.undisturbed:>10.1f} s{outcome.seconds:>9.1f} s"
    return f"{outcome.step:<14}{outcome.killed:<30}{seconds}  {ended:<7}{data:<10}{models:<22}{outcome.twice:>5}"


class Drill:
    """The steps on one storage."""

    def __init__(self, folder: Path, nodes: LocalNodes, storage: str, subjects: int) -> None:
        self.storage, self._folder, self._nodes, self._subjects = folder / storage, folder, nodes, subjects
        self.commits = Commits(self.storage)
        self.made: dict[str, list[Path]] = {}

    def run(self, step: Step, kills: bool) -> tuple[float, str, bool]:
        """Run a step; return its seconds, what was killed and when, and whether it ended well."""
        before, started = self.commits.look(), time.monotonic()
        driver, killed = self._start(step), "-"
        with running(driver):
            if kills and step.worker:
                killed = TOO_LATE
                if wait_until(lambda: self._is_in_middle(step), driver, LONGEST, self._look):
                    killed = f"after {time.monotonic() - started:.0f} s: {self._kill(step, driver)}"
            if not step.kills_head or not kills:
                wait_until(lambda: not driver.runs, driver, LONGEST, self._look)
        if kills and step.kills_head:
            driver = self._start(step)
            with running(driver):
                wait_until(lambda: not driver.runs, driver, LONGEST, self._look)
        made = sorted(place.relative_to(self.storage) for place in self.commits.look() - before)
        self.made[step.name] = made
        if driver.process.returncode:
            print(driver.said(), file=sys.stderr)
        return time.monotonic() - started, killed, driver.process.returncode == 0

    def _start(self, step: Step) -> Driver:
        settings = [f"dataset.demo.subjects={self._subjects}", *SETTINGS, *step.settings]
        space = self._folder / "space.yaml"
        space.write_text(SPACE)
        command = [str(space) if part == "SPACE" else part for part in step.command]
        command += ["--preset", "demo", "--dataset", "demo", "--storage", str(self.storage)]
        command += [part for setting in settings for part in ("--set", setting)]
        return Driver(command, self._nodes, self._folder / f"{self.storage.name}.log", **UNHURRIED)

    def _look(self) -> None:
        self.commits.look()

    def _is_in_middle(self, step: Step) -> bool:
        return step.middle(self.storage, self.commits.look()) and self._nodes.node_with(step.worker) is not None

    def _kill(self, step: Step, driver: Driver) -> str:
        """Kill the node that does the work, or the head with everything, and replace what was killed."""
        if step.kills_head:
            driver.kill()
            self._nodes.kill_head()
            self._nodes.start()
            return "the head"
        node = self._nodes.node_with(step.worker)
        if node is None:
            return TOO_LATE
        self._nodes.kill(node)
        self._nodes.add()
        return "its node"


def drill(folder: Path, subjects: int, chosen: Sequence[Step], report: Callable[[Outcome], None]) -> list[Outcome]:
    """Run the steps undisturbed and with kills, and report each of the latter."""
    nodes = LocalNodes(2, folder / "tmp")
    first, second = (Drill(folder, nodes, name, subjects) for name in ("undisturbed", "disturbed"))
    outcomes = []
    try:
        nodes.start()
        for step in chosen:
            outcomes.append(Outcome(step.name))
            outcomes[-1].undisturbed, _, ended = first.run(step, kills=False)
            if not ended:
                raise RuntimeError(f"The step {step.name} fails without a kill, too.")
        for step, outcome in zip(chosen, outcomes, strict=True):
            outcome.seconds, outcome.killed, outcome.ended = second.run(step, kills=True)
            outcome.same = compared(first.storage, second.storage, first.made[step.name], second.made[step.name])
            outcome.twice = len(second.commits.again)
            second.commits.again.clear()
            report(outcome)
    finally:
        nodes.stop()
    return outcomes


def main() -> None:
    """Run the drill, and print a row for each step."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--subjects", type=int, default=60, help="subjects of the generated corpus")
    options.add_argument("--only", nargs="+", choices=[step.name for step in STEPS], help="these steps; default: all")
    options.add_argument("--folder", help="keep the storages and the logs here; default: a temporary folder")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    chosen = [step for step in STEPS if not arguments.only or step.name in arguments.only]
    with nullcontext(arguments.folder) if arguments.folder else tempfile.TemporaryDirectory() as folder:
        print(HEADER, flush=True)
        try:
            outcomes = drill(Path(folder), arguments.subjects, chosen, lambda outcome: print(row(outcome), flush=True))
        except KeyboardInterrupt:
            sys.exit("stopped")
    if arguments.json:
        found: list[dict[str, Any]] = [asdict(outcome) for outcome in outcomes]
        Path(arguments.json).write_text(json.dumps(found, indent=2) + "\n")
    sys.exit(not all(outcome.is_good() for outcome in outcomes))


if __name__ == "__main__":
    main()
