"""Where an exported model comes from: its dataset, its phases and its evaluations, read from storage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.run_kinds import CANDIDATES, RunSettings, depth_of, kind_named

PHASES = ("pretrain", "pointwise", "listwise")


@dataclass(frozen=True)
class Phase:
    """One training phase: its settings, and its manifest."""

    name: str
    settings: Mapping[str, Any]
    facts: Mapping[str, Any] = field(default_factory=dict)
    metric: str = "MRR@10"


@dataclass(frozen=True)
class Provenance:
    """Where a model comes from."""

    title: str
    """The title of the model's run in tables."""
    encoder: str
    dataset: str
    corpus: Mapping[str, Any]
    first_stage: str
    depth: int
    phases: Sequence[Phase] = ()
    noise: float = 1.0
    evaluations: Sequence[Mapping[str, Any]] = ()
    query_types: Mapping[str, Any] = field(default_factory=dict)
    revision: str = "unknown"
    license: str = "unknown"
    layers: int | None = None


def gather(model: str, config: PipelineConfig, store: Store, license_name: str) -> Provenance:
    """Return a trained model's dataset, phases and evaluations from storage."""
    stage = model_stage(model, config)
    # The members of a soup are nodes such as listwise@14.
    phases = [
        name for name in dict.fromkeys(each.partition("@")[0] for each in flow.plan(stage, config)) if name in PHASES
    ]
    types = store.find("query_types", config) if config.input.query_type else None
    runs = [model, *(name for name, settings in config.runs.items() if model in _combined(settings))]
    nodes = {name: flow.run_node(name, config) for name in runs}
    measured = [artifact.manifest for artifact in store.finished("evaluate")]
    return Provenance(
        title=flow.title(model, config),
        encoder=config.encoder.name,
        dataset=without_folder(config.dataset.source),
        corpus=store.require("corpus", config).manifest,
        first_stage=flow.title(config.candidates.first_stage, config),
        depth=depth_of(flow.run_named(CANDIDATES, config)[1], config),
        phases=[
            Phase(
                name,
                section.model_dump(mode="json", exclude=section.unused()),
                found.manifest if found else {},
                "negative loss" if name == "pretrain" else config.training.metric,
            )
            for name in phases
            for section, found in [(getattr(config, name), store.find(name, config))]
        ],
        noise=config.noise.threshold if stage.partition("@")[0] in ("listwise", "soup") else 1.0,
        evaluations=[
            manifest
            for manifest in measured
            if (node := nodes.get(manifest["run"])) and manifest["inputs"].get(node) == flow.key(node, config)
        ],
        query_types=types.manifest if types else {},
        revision=store.require(stage, config).manifest["revision"],
        license=license_name,
        layers=config.encoder.layers,
    )


def model_stage(run: str, config: PipelineConfig) -> str:
    """Return the training phase whose model a run is ranked by."""
    settings: Any = config.runs[run]
    return str(settings.model)


def _combined(settings: RunSettings) -> tuple[str, ...]:
    """Return the runs that a combiner reads; none for other kinds."""
    return kind_named(settings.kind).reads(settings) if settings.kind in ("interpolate", "rrf", "fuse") else ()


def without_folder(source: str) -> str:
    """Return the source of a dataset as people should see it: without the folders of one machine."""
    kind, separator, path = source.partition(":")
    if not separator or "/" not in path or kind == "irds":
        return source
    return f"{kind}:{','.join(Path(each).name for each in path.split(','))}"
