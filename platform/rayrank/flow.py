"""The flow as a table: what each stage's result depends on, and which job makes it."""

import hashlib
import json
from collections.abc import Callable
from typing import NamedTuple

from rayrank.config import RunConfig


class Step(NamedTuple):
    """One stage: the config sections and the earlier results its own result is a function of."""

    sections: tuple[str, ...]
    inputs: Callable[[RunConfig], tuple[str, ...]]
    job: str
    version: int = 1
    """Raise it when the stage's code makes something else of the same inputs."""


FLOW: dict[str, Step] = {
    "corpus": Step(("dataset", "text"), lambda config: (), "jobs.build_corpus"),
    "index": Step(("index",), lambda config: ("corpus",), "jobs.build_index"),
    "candidates": Step(
        ("candidates",),
        lambda config: ("index",) if config.candidates.first_stage == "bm25" else ("corpus",),
        "jobs.build_candidates",
    ),
    "evaluate": Step(("evaluate",), lambda config: ("corpus", "candidates"), "jobs.evaluate"),
}


def inputs(stage: str, config: RunConfig) -> tuple[str, ...]:
    """Return the stages whose results this one reads."""
    return FLOW[stage].inputs(config)


def settings(stage: str, config: RunConfig) -> dict[str, dict[str, object]]:
    """Return the part of the configuration a stage's result depends on."""
    return {name: getattr(config, name).model_dump(mode="json") for name in FLOW[stage].sections}


def key(stage: str, config: RunConfig) -> str:
    """Return the address of a stage's result: the same for the same code, settings and inputs."""
    step = FLOW[stage]
    ancestry = [key(name, config) for name in step.inputs(config)]
    chosen = settings(stage, config)
    if "dataset" in chosen:
        # The fingerprint says what the data are; where they lie must not matter.
        del chosen["dataset"]["source"]
    identity = json.dumps([stage, step.version, chosen, ancestry], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
