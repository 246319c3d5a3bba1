"""Checks of the flow that a configuration describes, made before any key is computed."""

import re
from collections.abc import Callable, Iterable

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES, kind_named

WITHOUT_LOGITS = ("search", "dense", "interpolate", "rrf", "fuse")
"""Kinds of runs whose scores are no logits of relevance."""

OF_TRAINED_DENSE = ("train_dense", "trained_embeddings")
"""Stages that only runs of kind dense need: without such runs their settings may name runs that do not exist."""


def check(config: PipelineConfig) -> None:
    """Raise ConfigError for an unknown run, an invalid run name or a cycle of dependencies."""
    known = ", ".join(config.runs)
    named = {
        "candidates.first_stage": config.candidates.first_stage,
        "noise.run": config.noise.run,
        **_of_phases(config),
    }
    for key, name in named.items():
        if name not in config.runs:
            raise ConfigError(
                f"{key}={name} cannot be used: there is no such run; choose one of {known} with --set {key}=..."
            )
    for name, settings in config.runs.items():
        if name in (CANDIDATES, flow.NOISE) or not re.fullmatch(r"[A-Za-z][\w-]*", name):
            raise ConfigError(
                f"A run cannot be called {name!r}: use letters, digits, _ and -, but not {CANDIDATES} or {flow.NOISE}."
            )
        for read in kind_named(settings.kind).reads(settings):
            if not flow.is_run(read, config):
                raise ConfigError(
                    f"runs.{name}.of={read} cannot be used: there is no such run; the runs are {CANDIDATES}, {known}."
                )
    # Cycles among runs are checked first: the next check asks whether a combiner is a first stage, and that would
    # recurse forever through a cycle.
    _check_acyclic(config.runs, lambda name: _reads(name, config))
    _check_scores(config)
    stages = [name for name in flow.STAGES if name not in OF_TRAINED_DENSE]
    nodes = [*stages, *(f"{flow.RUN}{name}" for name in config.runs)]
    _check_acyclic(nodes, lambda name: flow.describe(name, config).inputs)
    _check_first_stage(config)
    _check_markers(config)
    _check_rounds(config)


def _check_markers(config: PipelineConfig) -> None:
    """Raise ConfigError if new markers would keep their random embeddings."""
    for phase in ("pointwise", "listwise"):
        if config.input.markers and getattr(config, phase).freeze_embeddings:
            raise ConfigError(
                f"{phase}.freeze_embeddings=true cannot be used with input.markers={config.input.markers}: the new "
                f"markers would never be learned; set one of the two to its default."
            )


def _check_rounds(config: PipelineConfig) -> None:
    """Raise ConfigError if a second round would learn from the same lists as the first, or from two rankings."""
    listwise = config.listwise
    if listwise.rounds == 1:
        return
    if not config.noise.reads_scores and not listwise.negative_ranks:
        raise ConfigError(
            f"listwise.rounds={listwise.rounds} cannot be used: nothing reads the scores of a round; set "
            f"noise.threshold, noise.margin or listwise.negative_ranks, or listwise.rounds=1."
        )
    for name, other in (("negatives_from", listwise.negatives_from), ("soup", listwise.soup)):
        if other:
            raise ConfigError(
                f"listwise.rounds={listwise.rounds} cannot be used with listwise.{name}: set listwise.rounds=1, or "
                f"leave {name} out."
            )


def _of_phases(config: PipelineConfig) -> dict[str, str]:
    """Return the runs that settings of the pointwise and the listwise phase name, by setting."""
    named = {
        "pointwise.teacher": config.pointwise.teacher,
        "listwise.teacher": config.listwise.teacher,
        "listwise.negatives_from": config.listwise.negatives_from,
    }
    return {key: name for key, name in named.items() if name}


def _reads(name: str, config: PipelineConfig) -> Iterable[str]:
    _, settings, kind = flow.run_named(name, config)
    return (flow.run_named(each, config)[0] for each in kind.reads(settings))


def _check_acyclic(names: Iterable[str], needs: Callable[[str], Iterable[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            cycle = " -> ".join(each.removeprefix(flow.RUN) for each in [*above[above.index(name) :], name])
            raise ConfigError(
                f"{cycle} is a cycle: change what one of these runs reads (of, model), noise.run, pointwise.teacher, "
                f"listwise.teacher or listwise.negatives_from."
            )
        if name not in done:
            for needed in needs(name):
                visit(needed, (*above, name))
            done.add(name)

    for name in names:
        visit(name, ())


def _check_scores(config: PipelineConfig) -> None:
    """Raise ConfigError if the noise filter or a phase reads scores that it cannot use."""
    noise, teacher = config.noise, config.pointwise.teacher
    if (noise.threshold < 1 or noise.relabel is not None) and not _has_logits(noise.run, config):
        raise ConfigError(
            f"noise.run={noise.run} cannot be used: its scores are no logits, so they are no probabilities; name a run "
            f"of kind rerank or file, or set noise.threshold=1 and no noise.relabel, and use noise.margin."
        )
    if teacher and not _has_logits(teacher, config):
        raise ConfigError(
            f"pointwise.teacher={teacher} cannot be used: its scores are no logits, so they are no probabilities; name "
            f"a run of kind rerank or file, or let it teach the listwise phase with listwise.teacher={teacher}."
        )
    if teacher and config.pointwise.pairs == "judged":
        raise ConfigError(
            f"pointwise.teacher={teacher} cannot be used with pointwise.pairs=judged: a teacher has scored candidates; "
            f"set pointwise.pairs=candidates, or leave the teacher out."
        )
    scored = {**({"noise.run": noise.run} if noise.reads_scores else {}), **_of_phases(config)}
    if config.listwise.negative_ranks and "listwise.negatives_from" not in scored:
        scored["candidates.first_stage"] = config.candidates.first_stage
    for key, name in scored.items():
        if not flow.run_named(name, config)[2].has_scores:
            because = "" if not key.startswith("candidates") else " with listwise.negative_ranks"
            raise ConfigError(f"{key}={name} cannot be used{because}: this run has no scores; name another run.")


def _has_logits(name: str, config: PipelineConfig) -> bool:
    """Return whether a run's scores are logits of relevance, so that their sigmoid is a probability."""
    of_sdnet = set(flow.rankers(config)).difference(flow.pair_rankers(config))
    return name not in of_sdnet and config.runs[name].kind not in WITHOUT_LOGITS


def _check_first_stage(config: PipelineConfig) -> None:
    """Raise ConfigError if the candidates come from a run without rows of the training queries."""
    name = config.candidates.first_stage
    if not flow.is_first_stage(name, config):
        able = ", ".join(each for each in config.runs if flow.is_first_stage(each, config))
        raise ConfigError(
            f"candidates.first_stage={name} cannot be used: this run is no first stage, so it has no training "
            f"candidates; choose one of {able}."
        )
