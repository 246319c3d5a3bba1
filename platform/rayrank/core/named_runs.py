"""Runs by their names: their settings and kinds, and their nodes in the flow."""

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES, RunKind, RunSettings, kind_named

RUN, TRAIN = "run:", "@train"


def is_run(name: str, config: PipelineConfig) -> bool:
    """Return whether a name is that of a run, or `candidates`, which stands for the first stage's run."""
    return name == CANDIDATES or name in config.runs


def run_named(name: str, config: PipelineConfig) -> tuple[str, RunSettings, RunKind]:
    """Return the name (the first stage's for `candidates`), the settings and the kind of a run."""
    name = config.candidates.first_stage if name == CANDIDATES else name
    if name not in config.runs:
        raise ConfigError(f"The run {name} does not exist: name one of {', '.join(config.runs)}, or add runs.{name}.")
    settings = config.runs[name]
    return name, settings, kind_named(settings.kind)


def run_node(name: str, config: PipelineConfig, train: bool = False) -> str:
    """Return the node of a run on the held-out splits or on train; a first stage has one node for both."""
    name, settings, kind = run_named(name, config)
    return f"{RUN}{name}{TRAIN if train and not kind.is_first_stage(settings, config) else ''}"


def run_of(name: str) -> tuple[str, bool] | None:
    """Return the name of a node's run and whether it is on train; None for a stage."""
    if not name.startswith(RUN):
        return None
    return name.removeprefix(RUN).removesuffix(TRAIN), name.endswith(TRAIN)


def rankers(config: PipelineConfig) -> list[str]:
    """Return the runs of kind `rerank`, in the configuration's order."""
    return [name for name, settings in config.runs.items() if settings.kind == "rerank"]


def is_first_stage(name: str, config: PipelineConfig) -> bool:
    """Return whether a run finds passages by itself."""
    _, settings, kind = run_named(name, config)
    return kind.is_first_stage(settings, config)


def title(name: str, config: PipelineConfig) -> str:
    """Return a run's title in tables and model cards."""
    name, settings, _ = run_named(name, config)
    return settings.title or name


def evaluating(name: str, config: PipelineConfig) -> PipelineConfig:
    """Return the configuration that evaluates a run against the first stage, or the first stage itself."""
    first = config.candidates.first_stage
    chosen = {"run": name, "baseline": "" if name == first else first}
    return config.model_copy(update={"evaluate": config.evaluate.model_copy(update=chosen)})
