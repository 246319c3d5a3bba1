"""The flow as a graph: what the result of each stage and of each run depends on, and the key that follows from it.

A node is a stage ("corpus"), a run ("run:drbert"), or a run on the training queries ("run:pointwise@train").
"""

import hashlib
import json
import re
from collections.abc import Callable
from typing import NamedTuple

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES, RunKind, RunSettings, kind_named

RUN, TRAIN = "run:", "@train"
NOISE = "noise"
"""Stands for the scores of the training candidates that the noise filter reads."""

_MODEL = ("encoder", "strm", "input", "training")
_ALL_BUT_METRIC = ("training.seed", "training.dev_queries", "training.evaluations")
"""Settings of the training section that an evaluation does not depend on: it uses only the metric."""
_FOLDERS = ("text.tokenizer", "encoder.name")
"""Settings that may name a local folder; their section has a fingerprint then."""


class Stage(NamedTuple):
    """One stage: the config sections and the earlier results its own result is a function of."""

    sections: tuple[str, ...]
    inputs: Callable[[PipelineConfig], tuple[str, ...]]
    job: str
    version: int = 1
    """Raise it when the stage's code makes something else of the same inputs."""
    ignores: tuple[str, ...] = ()
    """Settings of these sections that leave the result as it is, such as the place of something that has a digest."""
    scores_pairs: bool = False
    """Whether the stage trains a model that a run of kind `rerank` can use."""


class Node(NamedTuple):
    """What identifies a result: two nodes with equal descriptions have one artifact."""

    folder: str
    version: int
    settings: dict[str, object]
    inputs: tuple[str, ...]
    job: str


def pair_inputs(config: PipelineConfig) -> tuple[str, ...]:
    """Return what inputs are made of besides candidates: texts, and types where they are part of the input."""
    return ("corpus", *(["query_types"] if config.input.query_type else []))


def _learns_from(config: PipelineConfig) -> tuple[str, ...]:
    texts, *types = pair_inputs(config)
    return (texts, CANDIDATES, *types)


def _pretrained(config: PipelineConfig) -> tuple[str, ...]:
    return ("pretrain",) if config.pretrain.enabled else ()


def _of_query_types(config: PipelineConfig) -> tuple[str, ...]:
    return ("corpus", *(["query_typer"] if config.query_types.predict == "trained" else []))


def _of_listwise(config: PipelineConfig) -> tuple[str, ...]:
    start = ("pointwise",) if config.listwise.start == "pointwise" else _pretrained(config)
    # A threshold of 1 keeps everything, so there is nothing to score.
    return (*_learns_from(config), *start, *([NOISE] if config.noise.threshold < 1 else []))


def _of_evaluate(config: PipelineConfig) -> tuple[str, ...]:
    named = (config.evaluate.run or CANDIDATES, config.evaluate.baseline)
    return ("corpus", *dict.fromkeys(run_node(name, config) for name in named if is_run(name, config)))


STAGES: dict[str, Stage] = {
    "corpus": Stage(("dataset", "text"), lambda config: (), "jobs.build_corpus", ignores=("dataset.source",)),
    "domain_report": Stage(
        ("domain",), lambda config: ("corpus",), "jobs.domain_report", version=2, ignores=("domain.reference",)
    ),
    "index": Stage(("index",), lambda config: ("corpus",), "jobs.build_index"),
    "query_typer": Stage(
        ("encoder", "text", "training", "typer"),
        lambda config: () if config.typer.labels else ("corpus",),
        "jobs.train_query_types",
        version=2,
        ignores=("text.passage_pieces", "training.dev_queries", "training.metric", "typer.labels"),
    ),
    "query_types": Stage(("query_types",), _of_query_types, "jobs.train_pointwise"),
    "pretrain": Stage(
        ("encoder", "strm", "training", "pretrain"),
        lambda config: ("corpus",),
        "jobs.pretrain",
        ignores=("training.dev_queries", "training.metric"),
        version=3,
    ),
    "pointwise": Stage(
        (*_MODEL, "pointwise"),
        lambda config: (*_learns_from(config), *_pretrained(config)),
        "jobs.train_pointwise",
        version=4,
        scores_pairs=True,
    ),
    "noise_report": Stage(
        ("noise",),
        lambda config: (*_learns_from(config), NOISE),
        "jobs.filter_noise",
        ignores=("noise.run",),
        version=2,
    ),
    "listwise": Stage(
        (*_MODEL, "listwise", "noise"),
        _of_listwise,
        "jobs.train_listwise",
        version=3,
        ignores=("noise.run",),
        scores_pairs=True,
    ),
    "evaluate": Stage(("evaluate", "training"), _of_evaluate, "jobs.evaluate", ignores=_ALL_BUT_METRIC),
}


def is_run(name: str, config: PipelineConfig) -> bool:
    """Return whether a name is that of a run, or `candidates`, which stands for one."""
    return name == CANDIDATES or name in config.runs


def run_named(name: str, config: PipelineConfig) -> tuple[str, RunSettings, RunKind]:
    """Return a run's own name, its settings and its kind."""
    name = config.candidates.first_stage if name == CANDIDATES else name
    if name not in config.runs:
        raise ConfigError(f"The run {name} does not exist: name one of {', '.join(config.runs)}, or add runs.{name}.")
    settings = config.runs[name]
    return name, settings, kind_named(settings.kind)


def run_node(name: str, config: PipelineConfig, train: bool = False) -> str:
    """Return the node of a run: on the held-out splits, or on train; a first stage covers both."""
    name, _, kind = run_named(name, config)
    return f"{RUN}{name}{TRAIN if train and not kind.is_first_stage else ''}"


def node(name: str, config: PipelineConfig) -> str:
    """Return the node that a stage's name, a run's name or `candidates` stands for; a stage comes before a run."""
    if name in STAGES or name.startswith(RUN):
        return name
    if name == NOISE:
        return run_node(config.noise.run, config, train=True)
    if is_run(name, config):
        return run_node(name, config)
    names = ", ".join(dict.fromkeys([*STAGES, CANDIDATES, *config.runs]))
    raise ConfigError(f"{name} is neither a stage nor a run: name one of {names}.")


def run_of(name: str) -> tuple[str, bool] | None:
    """Return the name of a node's run and whether it is on train; None for a stage."""
    if not name.startswith(RUN):
        return None
    return name.removeprefix(RUN).removesuffix(TRAIN), name.endswith(TRAIN)


def describe(name: str, config: PipelineConfig) -> Node:
    """Return what the result of a node is a function of."""
    name = node(name, config)
    if found := run_of(name):
        return _describe_run(*found, config)
    stage = STAGES[name]
    chosen = {section: getattr(config, section).model_dump(mode="json") for section in stage.sections}
    needed = tuple(node(each, config) for each in stage.inputs(config))
    return Node(name, stage.version, chosen, needed, stage.job)


def _describe_run(name: str, train: bool, config: PipelineConfig) -> Node:
    name, settings, kind = run_named(name, config)
    stages = (node(each, config) for each in kind.inputs(settings, config))
    needed = (*stages, *(run_node(each, config, train) for each in kind.reads(settings)))
    chosen = {**kind.key(settings, config), **({"split": "train"} if train else {})}
    job = "jobs.build_candidates" if kind.is_first_stage else f"jobs.evaluate --run {name}"
    return Node(settings.kind.replace(":", "."), kind.version, {"run": chosen}, needed, job)


def inputs(name: str, config: PipelineConfig) -> tuple[str, ...]:
    """Return the nodes whose results this one reads."""
    return describe(name, config).inputs


def plan(name: str, config: PipelineConfig) -> tuple[str, ...]:
    """Return a node and all it depends on, in an order in which they can be made."""
    before = dict.fromkeys(each for source in inputs(name, config) for each in plan(source, config))
    return (*before, node(name, config))


def key(name: str, config: PipelineConfig) -> str:
    """Return the address of a node's result: the same for the same code, settings and inputs."""
    return _key(node(name, config), config, {})


def _key(name: str, config: PipelineConfig, known: dict[str, str]) -> str:
    if name not in known:
        found = describe(name, config)
        chosen = json.loads(json.dumps(found.settings))
        # A local folder counts by the digest of its content; where it is stored does not matter.
        folders = [each for each in _FOLDERS if chosen.get(each.partition(".")[0], {}).get("fingerprint")]
        for ignored in (*(STAGES[name].ignores if name in STAGES else ()), *folders):
            section, _, setting = ignored.partition(".")
            del chosen[section][setting]
        ancestry = [_key(each, config, known) for each in found.inputs]
        identity = json.dumps([found.folder, found.version, chosen, ancestry], sort_keys=True)
        known[name] = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return known[name]


def rankers(config: PipelineConfig) -> list[str]:
    """Return the runs that a trained model ranks, in the configuration's order."""
    return [name for name, settings in config.runs.items() if settings.kind == "rerank"]


def used_runs(config: PipelineConfig) -> list[str]:
    """Return the runs that a pipeline makes: those worth making, without first stages that nothing reads."""
    read = {config.candidates.first_stage, config.evaluate.run, config.evaluate.baseline}
    read |= {name for settings in config.runs.values() for name in kind_named(settings.kind).reads(settings)}
    kinds = {name: kind_named(settings.kind) for name, settings in config.runs.items()}
    return [
        name
        for name, kind in kinds.items()
        if (name in read or not kind.is_first_stage) and kind.is_worth_making(config.runs[name], config)
    ]


def title(name: str, config: PipelineConfig) -> str:
    """Return what tables and model cards call a run."""
    name, settings, _ = run_named(name, config)
    return settings.title or name


def check(config: PipelineConfig) -> None:
    """Refuse runs that name what does not exist, and results that depend on themselves."""
    known = ", ".join(config.runs)
    for key, name in (("candidates.first_stage", config.candidates.first_stage), ("noise.run", config.noise.run)):
        if name not in config.runs:
            raise ConfigError(
                f"{key}={name} cannot be used: there is no such run; choose one of {known} with --set {key}=..."
            )
    for name, settings in config.runs.items():
        if name in (CANDIDATES, NOISE) or not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise ConfigError(f"A run cannot be called {name!r}: use letters, digits, _ and -, but not {CANDIDATES}.")
        for read in kind_named(settings.kind).reads(settings):
            if not is_run(read, config):
                raise ConfigError(
                    f"runs.{name}.of={read} cannot be used: there is no such run; the runs are {CANDIDATES}, {known}."
                )
    done: set[str] = set()
    for name in [*STAGES, *(f"{RUN}{name}" for name in config.runs)]:
        _check_no_circle(name, config, (), done)


def _check_no_circle(name: str, config: PipelineConfig, above: tuple[str, ...], done: set[str]) -> None:
    if name in above:
        circle = " -> ".join(each.removeprefix(RUN) for each in [*above[above.index(name) :], name])
        raise ConfigError(f"{circle} is a circle: change what one of these runs reads (of, model) or noise.run.")
    if name not in done:
        for needed in describe(name, config).inputs:
            _check_no_circle(needed, config, (*above, name), done)
        done.add(name)
