"""Seconds until a Ray actor that scores pairs and a Ray Train worker are ready, with and without the fork server.

Each turn starts a Ray of its own. The first actor of a turn with the fork server waits for the server's imports.
"""

import argparse
import json
import logging
import time
from itertools import chain
from pathlib import Path

import ray
import ray.train.torch

from benchmarks.tables import spread
from rayrank.cluster.fork_server import runtime_env


@ray.remote
class Actor:
    """An actor that imports what scoring needs."""

    def ready(self) -> None:
        import rayrank.runs.scoring  # noqa: F401


def _train() -> None:
    import rayrank.training.ray_worker  # noqa: F401


def _actor_seconds() -> float:
    started = time.monotonic()
    actor = Actor.remote()
    ray.get(actor.ready.remote())
    seconds = time.monotonic() - started
    ray.kill(actor)
    return seconds


def _train_seconds() -> float:
    started = time.monotonic()
    ray.train.torch.TorchTrainer(_train, scaling_config=ray.train.ScalingConfig(num_workers=1)).fit()
    return time.monotonic() - started


def _turn(environment: dict[str, str], repeats: int) -> tuple[float, list[float], list[float]]:
    ray.init(
        address="local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        runtime_env=environment,
    )  # fmt: skip
    first = _actor_seconds()
    actors = [_actor_seconds() for _ in range(repeats)]
    trainings = [_train_seconds() for _ in range(repeats)]
    ray.shutdown()
    return first, actors, trainings


def main() -> None:
    """Measure in turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3, help="actors and trainings per turn")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    ways = {"without": dict[str, str](), "with": runtime_env()}
    found: dict[str, list[tuple[float, list[float], list[float]]]] = {way: [] for way in ways}
    for _ in range(arguments.turns):
        for way, environment in ways.items():
            found[way].append(_turn(environment, arguments.repeats))
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=2))
    print("| fork server | first actor, s | later actors, s | Ray Train, s |\n|---|---|---|---|")
    for way, turns in found.items():
        first, actors, trainings = zip(*turns, strict=True)
        columns = [first, list(chain(*actors)), list(chain(*trainings))]
        print(f"| {way} | {' | '.join(spread(each, 1) for each in columns)} |")


if __name__ == "__main__":
    main()
