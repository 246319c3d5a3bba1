"""Which studies on storage belong to a configuration: those of its own ranker, whatever rows or options they had."""

from datetime import UTC, datetime
from typing import Any

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.stages.ablation import full_run

ABOUT = "about.json"


def about(*configs: PipelineConfig) -> dict[str, Any]:
    """Return what a study writes as about.json: the keys of the rankers that it is about, and when it was made."""
    return {"rankers": [_ranker(config) for config in configs], "created": datetime.now(UTC).isoformat()}


def studies_of(folder: str, file: str, config: PipelineConfig, store: Store) -> list[Any]:
    """Return a JSON file of every study that belongs to a configuration, the newest study first."""
    ranker, found = _ranker(config), []
    for study in store.folders(folder):
        if study.exists(ABOUT) and study.exists(file):
            known = study.read_json(ABOUT)
            if ranker in known["rankers"]:
                found.append((known["created"], study))
    found.sort(key=lambda each: each[0], reverse=True)
    return [study.read_json(file) for _, study in found]


def _ranker(config: PipelineConfig) -> str:
    """Return the key of the full model's run; that of the first stage if there is no model."""
    try:
        name = full_run(config)
    except ConfigError:
        name = config.candidates.first_stage
    return flow.key(flow.run_node(name, config), config)
