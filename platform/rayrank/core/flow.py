"""The flow as a graph: what the result of each stage and of each run depends on, and the key computed from that.

A node is a stage ("corpus"), a run ("run:drbert"), or a run on the training queries ("run:pointwise@train").
"""

from collections.abc import Iterable
from typing import Any

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.named_runs import (
    RUN as RUN,
    TRAIN as TRAIN,
    evaluating as evaluating,
    is_first_stage as is_first_stage,
    is_run as is_run,
    rankers as rankers,
    run_named as run_named,
    run_node as run_node,
    run_of as run_of,
    title as title,
)
from rayrank.core.nodes import Node, Stage, is_variant, soup_members, stage_of
from rayrank.core.run_kinds import CANDIDATES

NOISE = "noise"
"""Stands for the scores of the training candidates that the noise filter reads."""

_MODEL = ("encoder", "strm", "input", "training")
_ALL_BUT_METRIC = ("training.seed", "training.dev_queries", "training.evaluations", "training.patience")
"""Settings of the training section that an evaluation does not depend on: it uses only the metric."""
_NO_DEV = ("training.dev_queries", "training.metric")
"""Settings of the training section that a phase without a ranking metric does not depend on."""
_ALL_BUT_LANGUAGE = ("index.stemmer", "index.stopwords")
"""Settings of the index section that a stage which needs only the language does not depend on."""
_PATHS = ("dataset.source", "dataset.types_file")
_PASSAGES_ONLY = ("domain_report", "index", "rm3_index", "pretrain")  # stages that read only passages
_OF_QUERIES = "on_unknown on_shared type_field group_field holdout train_queries train_seed relevant_from".split()
"""Settings of the dataset section that do not change the passages."""


def pair_inputs(config: PipelineConfig) -> tuple[str, ...]:
    """Return the nodes that encoder inputs are made of, besides candidates: texts, and query types if used."""
    return ("corpus", *(["query_types"] if config.input.query_type else []))


def _learns_from(config: PipelineConfig) -> tuple[str, ...]:
    return ("corpus", CANDIDATES, *pair_inputs(config)[1:])


def _pretrained(config: PipelineConfig) -> tuple[str, ...]:
    return ("pretrain",) if config.pretrain.enabled else ()


def _of_query_types(config: PipelineConfig) -> tuple[str, ...]:
    return ("corpus", *(["query_typer"] if config.query_types.predict == "trained" else []))


def _of_pointwise(config: PipelineConfig) -> tuple[str, ...]:
    texts = pair_inputs(config) if config.pointwise.pairs == "judged" else _learns_from(config)
    return (*texts, *_pretrained(config), *_on_train([config.pointwise.teacher], config))


def _on_train(names: Iterable[str], config: PipelineConfig) -> tuple[str, ...]:
    return tuple(run_node(name, config, train=True) for name in names if name)


def _of_listwise(config: PipelineConfig) -> tuple[str, ...]:
    listwise = config.listwise
    start = ("pointwise",) if listwise.start == "pointwise" else _pretrained(config)
    if listwise.continued and listwise.round_before:
        start = (f"listwise@{listwise.round_before}",)
    noise = (NOISE,) if config.noise.reads_scores else ()
    runs = _on_train([listwise.teacher, listwise.round_before or listwise.negatives_from], config)
    return (*_learns_from(config), *start, *noise, *runs)


def _of_train_dense(config: PipelineConfig) -> tuple[str, ...]:
    first, noise = config.train_dense.first_stage, config.train_dense.noise_run
    if not (is_run(first, config) and is_first_stage(first, config)):
        raise ConfigError(
            f"train_dense.first_stage={first} cannot be used: it is no first stage; name one, such as a run of kind "
            f"search, with --set train_dense.first_stage=..."
        )
    if noise and noise not in pair_rankers(config):
        raise ConfigError(
            f"train_dense.noise_run={noise} cannot be used: name a run of kind rerank with model=pointwise or "
            f"model=listwise, or leave it empty to filter nothing."
        )
    return ("corpus", *_on_train(dict.fromkeys([first, noise]), config))


def _of_evaluate(config: PipelineConfig) -> tuple[str, ...]:
    named = (config.evaluate.run or CANDIDATES, config.evaluate.baseline)
    return ("corpus", *dict.fromkeys(run_node(name, config) for name in named if is_run(name, config)))


STAGES: dict[str, Stage] = {
    "corpus": Stage(("dataset", "text"), lambda config: (), "jobs.build_corpus", ignores=(*_PATHS, "dataset.fields")),
    "passage_fields": Stage(
        ("dataset",), lambda config: ("corpus",), "jobs.run_pipeline --until passage_fields", ignores=_PATHS
    ),
    "domain_report": Stage(
        ("domain",), lambda config: ("corpus",), "jobs.domain_report", version=2, ignores=("domain.reference",)
    ),
    "index": Stage(("index",), lambda config: ("corpus",), "jobs.build_index"),
    "rm3_index": Stage(("index",), lambda config: ("corpus",), "jobs.build_candidates"),
    "train_deepct": Stage(
        ("encoder", "index", "training", "deepct"),
        lambda config: ("corpus",),
        "jobs.build_candidates",
        ignores=(*_NO_DEV, *_ALL_BUT_LANGUAGE, "deepct.scale"),
    ),
    "deepct_documents": Stage(("deepct",), lambda config: ("corpus", "train_deepct"), "jobs.build_candidates"),
    "deepct_index": Stage(("index",), lambda config: ("deepct_documents",), "jobs.build_candidates"),
    "train_doc2query": Stage(
        ("training", "doc2query"),
        lambda config: ("corpus",),
        "jobs.build_candidates",
        ignores=(*_NO_DEV, "doc2query.queries", "doc2query.top_k"),
    ),
    "doc2query_documents": Stage(("doc2query",), lambda config: ("corpus", "train_doc2query"), "jobs.build_candidates"),
    "doc2query_index": Stage(("index",), lambda config: ("doc2query_documents",), "jobs.build_candidates"),
    "embeddings": Stage(("dense",), lambda config: ("corpus",), "jobs.build_candidates"),
    "train_dense": Stage(
        ("dense", "train_dense", "training"),
        _of_train_dense,
        "jobs.build_candidates",
        ignores=("dense.partition_texts",),
    ),
    "trained_embeddings": Stage(("dense",), lambda config: ("corpus", "train_dense"), "jobs.build_candidates"),
    "query_typer": Stage(
        ("encoder", "text", "training", "typer"),
        lambda config: () if config.typer.labels else ("corpus",),
        "jobs.train_query_types",
        version=2,
        ignores=("text.passage_pieces", *_NO_DEV, "typer.labels"),
    ),
    "query_types": Stage(("query_types", "index"), _of_query_types, "jobs.train_pointwise", ignores=_ALL_BUT_LANGUAGE),
    "pretrain": Stage(
        ("encoder", "strm", "training", "pretrain"), lambda config: ("corpus",), "jobs.pretrain", 3, ignores=_NO_DEV
    ),
    "pointwise": Stage(
        (*_MODEL, "pointwise"),
        _of_pointwise,
        "jobs.train_pointwise",
        version=4,
        ignores=("pointwise.teacher",),
        scores_pairs=True,
    ),
    "noise_report": Stage(
        ("noise",), lambda config: (*_learns_from(config), NOISE), "jobs.filter_noise", 3, ignores=("noise.run",)
    ),
    "listwise": Stage(
        (*_MODEL, "listwise", "noise"),
        _of_listwise,
        "jobs.train_listwise",
        version=3,
        ignores=("noise.run", "listwise.teacher", "listwise.negatives_from"),
        scores_pairs=True,
    ),
    "soup": Stage(("input",), soup_members, "jobs.run_pipeline --until soup", scores_pairs=True),
    "sdnet": Stage(
        ("encoder", "training", "sdnet"),
        lambda config: ("corpus", CANDIDATES),
        "jobs.run_pipeline --until sdnet",
        version=2,
        ignores=("encoder.dropout",),  # a frozen encoder drops out nothing
        scores_pairs=True,
    ),
    "evaluate": Stage(("evaluate", "training"), _of_evaluate, "jobs.evaluate", ignores=_ALL_BUT_METRIC),
}


def node(name: str, config: PipelineConfig) -> str:
    """Return the node of a stage, of a run, of `candidates` or of `noise`; a stage wins over a run of its name."""
    if name in STAGES or name.startswith(RUN) or is_variant(name):
        return name
    if name == NOISE:
        return run_node(config.listwise.round_before or config.noise.run, config, train=True)
    if is_run(name, config):
        return run_node(name, config)
    names = ", ".join(dict.fromkeys([*STAGES, CANDIDATES, *config.runs]))
    raise ConfigError(f"{name} is neither a stage nor a run: name one of {names}.")


def describe(name: str, config: PipelineConfig) -> Node:
    """Return what the result of a node depends on."""
    name = node(name, config)
    if found := run_of(name):
        return _describe_run(*found, config)
    name, config = stage_of(name, config)
    stage = STAGES[name]
    sections = {name: getattr(config, name) for name in stage.sections}
    chosen = {name: section.model_dump(mode="json", exclude=section.unused()) for name, section in sections.items()}
    needed = tuple(node(each, config) for each in stage.inputs(config))
    # Which words are marked has changed since the first version, for texts that follow one that ends in an apostrophe.
    version = stage.version + (1 if "input" in sections and config.input.markers else 0)
    return Node(name, version, chosen, needed, stage.job)


def _describe_run(name: str, train: bool, config: PipelineConfig) -> Node:
    name, settings, kind = run_named(name, config)
    if train:
        kind.check_train(name, settings)
    stages = (node(each, config) for each in kind.inputs(settings, config))
    needed = (*stages, *(run_node(each, config, train) for each in kind.reads(settings)))
    chosen = {**kind.key(settings, config), **({"split": "train"} if train else {})}
    job = f"jobs.evaluate --run {name}"
    if kind.is_first_stage(settings, config):
        is_chosen = name == config.candidates.first_stage
        job = "jobs.build_candidates" if is_chosen else f"jobs.run_pipeline --until {name}"
    return Node(settings.kind.replace(":", "."), kind.version, {"run": chosen}, needed, job)


def inputs(name: str, config: PipelineConfig) -> tuple[str, ...]:
    """Return the nodes whose results this one reads."""
    return describe(name, config).inputs


def plan(name: str, config: PipelineConfig) -> tuple[str, ...]:
    """Return a node and all nodes it depends on, each after its inputs."""
    found: dict[str, None] = {}
    _add_planned(node(name, config), config, found)
    return tuple(found)


def _add_planned(name: str, config: PipelineConfig, found: dict[str, None]) -> None:
    # A node that several others read is visited once: the paths through many rounds are too many.
    for source in inputs(name, config):
        if source not in found:
            _add_planned(source, config, found)
    found[name] = None


def key(name: str, config: PipelineConfig) -> str:
    """Return the key of a node's artifact: the same for the same version, settings and inputs."""
    return _key(node(name, config), config, {})


def _key(name: str, config: PipelineConfig, known: dict[str, str]) -> str:
    if name not in known:
        found = describe(name, config)
        read, others = (_of_passages(config), {}) if name in _PASSAGES_ONLY else (config, known)
        input_keys = [_key(each, read, others) for each in found.inputs]
        known[name] = found.key(STAGES[found.folder].ignores if not run_of(name) else (), input_keys)
    return known[name]


def _of_passages(config: PipelineConfig) -> PipelineConfig:
    defaults = {name: type(config.dataset).model_fields[name].default for name in _OF_QUERIES}
    return config.model_copy(update={"dataset": config.dataset.model_copy(update=defaults)})


def pair_rankers(config: PipelineConfig) -> list[str]:
    """Return the runs of kind `rerank` whose model reads query and passage as one input."""
    settings: Any = config.runs
    return [name for name in rankers(config) if reads_pairs(settings[name].model)]


def reads_pairs(stage: str) -> bool:
    """Return whether the encoder of a stage's model reads query and passage as one input, as `input` describes it."""
    return "input" in STAGES[stage.partition("@")[0]].sections


def used_runs(config: PipelineConfig) -> list[str]:
    """Return the runs that a pipeline makes: those worth making, without first stages that nothing reads."""
    wanted = [name for name in config.runs if not is_first_stage(name, config)]
    wanted += [config.candidates.first_stage, config.evaluate.run, config.evaluate.baseline]
    used: set[str] = set()
    while wanted:
        name = wanted.pop()
        if not is_run(name, config) or run_named(name, config)[0] in used:
            continue
        name, settings, kind = run_named(name, config)
        if kind.is_worth_making(settings, config):
            used.add(name)
            # Runs are read by stages, too: the training of a dense encoder takes its negatives from one.
            wanted += [found[0] for node in plan(run_node(name, config), config) if (found := run_of(node))]
    return [name for name in config.runs if name in used]
