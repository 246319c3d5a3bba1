"""The flow as a table: what each stage's result depends on, and which job makes it."""

import hashlib
import json
from collections.abc import Callable
from typing import NamedTuple

from rayrank.core.config import PipelineConfig


class Step(NamedTuple):
    """One stage: the config sections and the earlier results its own result is a function of."""

    sections: tuple[str, ...]
    inputs: Callable[[PipelineConfig], tuple[str, ...]]
    job: str
    version: int = 1
    """Raise it when the stage's code makes something else of the same inputs."""
    ignores: tuple[str, ...] = ()
    """Settings of these sections that leave the result as it is, such as where something lies that has a digest."""


RUNS = {
    "bm25": "candidates",
    "provided": "candidates",
    "pointwise": "rank_pointwise",
    "drbert": "rank_listwise",
    "fused": "rank_fused",
}
"""The runs that have a name, and the stage that makes each."""

_MODEL = ("encoder", "strm", "input", "training")


def _pairs(config: PipelineConfig) -> tuple[str, ...]:
    """What inputs are made of: texts, candidates, and types where they are part of the input."""
    return ("corpus", "candidates", *(["query_types"] if config.input.query_type else []))


def _pretrained(config: PipelineConfig) -> tuple[str, ...]:
    return ("pretrain",) if config.pretrain.enabled else ()


def _of_query_types(config: PipelineConfig) -> tuple[str, ...]:
    return ("corpus", *(["query_typer"] if config.query_types.predict == "trained" else []))


def _of_listwise(config: PipelineConfig) -> tuple[str, ...]:
    start = ("pointwise",) if config.listwise.start == "pointwise" else _pretrained(config)
    # A threshold of 1 keeps everything, so there is nothing to score.
    return (*_pairs(config), *start, *(["noise"] if config.noise.threshold < 1 else []))


def last_run(config: PipelineConfig) -> str:
    """Return the run of the last phase's model."""
    return "drbert" if config.listwise.enabled else "pointwise"


def _of_evaluate(config: PipelineConfig) -> tuple[str, ...]:
    named = (config.evaluate.run, config.evaluate.baseline)
    return ("corpus", *dict.fromkeys(RUNS[name] for name in named if name in RUNS))


FLOW: dict[str, Step] = {
    "corpus": Step(("dataset", "text"), lambda config: (), "jobs.build_corpus", ignores=("dataset.source",)),
    "domain_report": Step(("domain",), lambda config: ("corpus",), "jobs.domain_report"),
    "index": Step(("index",), lambda config: ("corpus",), "jobs.build_index"),
    "candidates": Step(
        ("candidates",),
        lambda config: ("index",) if config.candidates.first_stage == "bm25" else ("corpus",),
        "jobs.build_candidates",
    ),
    "query_typer": Step(
        ("encoder", "text", "training", "typer"),
        lambda config: () if config.typer.labels else ("corpus",),
        "jobs.train_query_types",
        version=2,
        ignores=("text.passage_pieces", "training.dev_queries", "typer.labels"),
    ),
    "query_types": Step(("query_types",), _of_query_types, "jobs.train_pointwise"),
    "pretrain": Step(
        ("encoder", "strm", "training", "pretrain"),
        lambda config: ("corpus",),
        "jobs.pretrain",
        ignores=("training.dev_queries",),
        version=3,
    ),
    "pointwise": Step(
        (*_MODEL, "pointwise"),
        lambda config: (*_pairs(config), *_pretrained(config)),
        "jobs.train_pointwise",
        version=4,
    ),
    "noise": Step((), lambda config: (*_pairs(config), "pointwise"), "jobs.filter_noise"),
    "noise_report": Step(("noise",), lambda config: (*_pairs(config), "noise"), "jobs.filter_noise"),
    "listwise": Step(
        (*_MODEL, "listwise", "noise"),
        _of_listwise,
        "jobs.train_listwise",
        version=3,
        ignores=("listwise.enabled",),
    ),
    "rank_pointwise": Step((), lambda config: (*_pairs(config), "pointwise"), "jobs.evaluate --run pointwise"),
    "rank_listwise": Step((), lambda config: (*_pairs(config), "listwise"), "jobs.evaluate --run drbert"),
    "rank_fused": Step(
        ("fusion",), lambda config: ("corpus", "candidates", RUNS[last_run(config)]), "jobs.evaluate --run fused"
    ),
    "evaluate": Step(("evaluate",), _of_evaluate, "jobs.evaluate"),
}


def inputs(stage: str, config: PipelineConfig) -> tuple[str, ...]:
    """Return the stages whose results this one reads."""
    return FLOW[stage].inputs(config)


def plan(stage: str, config: PipelineConfig) -> tuple[str, ...]:
    """Return a stage and all it depends on, in an order in which they can be made."""
    before = dict.fromkeys(name for source in inputs(stage, config) for name in plan(source, config))
    return (*before, stage)


def settings(stage: str, config: PipelineConfig) -> dict[str, dict[str, object]]:
    """Return the part of the configuration a stage's result depends on."""
    return {name: getattr(config, name).model_dump(mode="json") for name in FLOW[stage].sections}


def key(stage: str, config: PipelineConfig) -> str:
    """Return the address of a stage's result: the same for the same code, settings and inputs."""
    step = FLOW[stage]
    ancestry = [key(name, config) for name in step.inputs(config)]
    chosen = settings(stage, config)
    for name in step.ignores:
        section, _, setting = name.partition(".")
        del chosen[section][setting]
    identity = json.dumps([stage, step.version, chosen, ancestry], sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()[:16]
