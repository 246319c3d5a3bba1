"""What was trained, how the trainings went, and what every artifact cost."""

import json
from collections.abc import Sequence
from typing import Any

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.stages.ablation import seconds_on_devices

MOST_LINES = 400
"""Lines of a training log that are kept, evenly spaced; those with a dev measurement are all kept."""

_SHOWN = (
    "num_steps", "best_step", "batch_size", "epochs", "lr", "dev", "first_stage_dev", "train_seconds", "num_workers",
    "gpus", "device",
)  # fmt: skip


def nodes(names: Sequence[str], config: PipelineConfig, store: Store) -> dict[str, Artifact]:
    """Return the artifacts that storage has of all that some runs need, each after its inputs."""
    wanted = dict.fromkeys(node for name in names for node in flow.plan(flow.run_node(name, config), config))
    return {node: found for node in wanted if (found := store.find(node, config))}


def phases(found: dict[str, Artifact]) -> list[dict[str, Any]]:
    """Return the facts of every training, and its log."""
    trained = {node: artifact for node, artifact in found.items() if "num_steps" in artifact.manifest}
    return [
        {
            "name": node,
            **{name: artifact.manifest[name] for name in _SHOWN if name in artifact.manifest},
            "settings": artifact.manifest["config"].get(artifact.stage, {}),
            "log": _log(artifact),
        }
        for node, artifact in trained.items()
    ]


def costs(found: dict[str, Artifact]) -> list[dict[str, Any]]:
    """Return what every artifact took: seconds, device seconds if it needed a model, and pairs scored a second."""
    return [
        {"node": node, "artifact": f"{artifact.stage}/{artifact.key}", **_cost(artifact.manifest)}
        for node, artifact in found.items()
    ]


def _cost(facts: dict[str, Any]) -> dict[str, Any]:
    gpus, scored = facts.get("gpus"), facts.get("score_seconds")
    return {
        "seconds": facts["seconds"],
        "device_seconds": seconds_on_devices(facts) or None,
        "pairs_per_second": facts["num_candidates"] / (scored * (gpus or 1)) if scored else None,
        "device": None if gpus is None else "GPU" if gpus else "CPU",
    }


def _log(artifact: Artifact) -> list[dict[str, Any]]:
    with artifact.open("log.jsonl") as stream:
        lines = [json.loads(line) for line in stream]
    every = -(-len(lines) // MOST_LINES) or 1
    last = len(lines) - 1
    kept = [line for place, line in enumerate(lines) if place % every == 0 or place == last or line["dev"] is not None]
    names = ("step", "loss", "lr", "examples_per_s", "dev")
    return [{name: line[name] for name in names} for line in kept]
