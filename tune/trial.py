"""A trial: makes the artifacts of one configuration as any job does, and reports its metrics to Ray Tune."""

import logging
import time
from typing import Any

import ray
import ray.exceptions
import ray.tune

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, RayrankError, StoppedEarly, StorageError
from rayrank.core.run_kinds import CANDIDATES, depth_of
from rayrank.data.digests import varied
from rayrank.stages import listwise
from rayrank.stages.make import make
from rayrank.training.loop import Log
from rayrank.training.ray_train import LostWorkers
from rayrank.tune.search import EPOCH, OUTCOME, REASON
from rayrank.tune.spaces import EPOCHS, Changes, configured_value
from rayrank.tune.study import COST, DEV, trial_name

log = logging.getLogger(__name__)

PASSING = (
    StorageError,
    ray.exceptions.OutOfMemoryError,
    ray.exceptions.RayActorError,
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.ObjectLostError,
)
"""Errors that may pass: full storage or memory, and the loss of a node, other than one of a training's workers."""


def run_trial(changes: Changes, base: PipelineConfig, store: Store, cost: bool, rungs: Any) -> None:
    """Train a trial's model, report the dev metric after every epoch, and at the end the metrics or the reason of a
    failure."""
    # The unchanged configuration is the baseline, so it is never stopped early.
    is_baseline = all(configured_value(base, key) == value for key, value in changes.items())
    epochs = changes.get(EPOCHS, base.listwise.epochs)
    reporter = _Reporter(trial_name(changes), epochs, None if is_baseline else rungs)
    try:
        figures = _figures(varied(base, changes), store, cost, reporter)
    except StoppedEarly:
        figures = {DEV: reporter.dev, OUTCOME: "stopped"}
    except PASSING as error:
        log.exception("trial interrupted")
        # In case it was the last attempt: Tune starts the trial again at most resources.retries times.
        ray.tune.report({REASON: reason(error)})
        raise
    except Exception as error:
        log.exception("trial failed")
        figures = {DEV: float("nan"), COST: float("nan"), OUTCOME: "failed", REASON: reason(error)}
    ray.tune.report(figures)


class _Reporter:
    """Reports the first dev measurement after each epoch to Tune, and decides whether the training continues.

    There may be several measurements in an epoch, and small data has more epochs than the configuration, which count as
    parts of its epochs.
    """

    def __init__(self, name: str, epochs: int, rungs: Any) -> None:
        self._name, self._epochs, self._rungs = name, epochs, rungs
        self._reported = 0
        self.dev = float("nan")

    def __call__(self, line: Log) -> bool:
        # The last measurement is reported at the end, when the model is saved.
        if line.dev is None or line.step == line.num_steps:
            return True
        self.dev = line.dev
        # Rounded down, because ASHA must not compare trials after a part of an epoch.
        epoch = line.step * self._epochs // line.num_steps
        if epoch <= self._reported:
            return True
        self._reported = epoch
        ray.tune.report({DEV: line.dev, EPOCH: epoch})
        return self._rungs is None or bool(ray.get(self._rungs.may_continue.remote(self._name, epoch, line.dev)))


def listwise_run(config: PipelineConfig) -> str:
    """Return the name of the last run that is ranked by the listwise model."""
    settings: Any = config.runs
    return [name for name in flow.rankers(config) if settings[name].model == "listwise"][-1]


def missing(changes: Changes, base: PipelineConfig, store: Store) -> set[tuple[str, str]]:
    """Return the artifacts (stage and key) that a trial would make; none if its settings cannot be used together."""
    try:
        config = varied(base, changes)
    except ConfigError:
        return set()  # the trial itself fails with the reason
    return {
        (stage, flow.key(stage, config)) for stage in flow.plan("listwise", config) if not store.find(stage, config)
    }


def _figures(config: PipelineConfig, store: Store, cost: bool, reporter: _Reporter) -> dict[str, Any]:
    started = time.monotonic()
    for stage in flow.plan("listwise", config)[:-1]:
        make(stage, config, store)
    artifact = listwise.run(config, store, reporter)
    manifest = artifact.manifest
    facts = {name: manifest[name] for name in ("train_seconds", "num_steps", "best_step", "device", "key")}
    figures = {DEV: manifest["dev"], EPOCH: config.listwise.epochs, OUTCOME: "finished"}
    if cost:
        scored = make(flow.run_node(listwise_run(config), config), config, store).manifest
        facts["pairs_per_s"] = scored["num_candidates"] / scored["score_seconds"]
        depth = depth_of(flow.run_named(CANDIDATES, config)[1], config)
        figures[COST] = 1000 * depth / facts["pairs_per_s"]
    facts["seconds"] = round(time.monotonic() - started, 2)
    return {**figures, **{f"fact/{name}": fact for name, fact in facts.items()}}


def reason(error: Exception) -> str:
    """Return the reason why a trial failed, in one line."""
    if isinstance(error, LostWorkers):
        # The error's own advice, to run the command again, does not apply: a failed trial is not repeated.
        return "A worker of the training died: it was killed, or the machine ran out of memory."
    if isinstance(error, RayrankError):
        return str(error)
    failures = getattr(error, "worker_failures", {})
    first = next(iter(failures.values()), error)
    first = getattr(first, "cause", None) or first
    lines = [line.strip() for line in str(first).splitlines() if line.strip()]
    return f"{type(first).__name__}: {lines[-1] if lines else 'no message'}"
