"""Kinds of runs. A run is a ranked list per query; `runs` in the configuration names each run and says its kind."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import Field, ValidationError

from rayrank.core.errors import ConfigError
from rayrank.core.section import Section

if TYPE_CHECKING:
    import pyarrow as pa

    from rayrank.core.artifacts import Artifact, Store
    from rayrank.core.config import PipelineConfig

KINDS = {
    "search": "rayrank.runs.search:Search",
    "dense": "rayrank.runs.dense:Dense",
    "file": "rayrank.runs.file:File",
    "provided": "rayrank.runs.provided:Provided",
    "rerank": "rayrank.runs.rerank:Rerank",
    "windows": "rayrank.runs.windows:WindowRun",
    "interpolate": "rayrank.runs.interpolate:Interpolate",
    "rrf": "rayrank.runs.rrf:Rrf",
    "fuse": "rayrank.runs.fuse:Fuse",
}
"""The kinds that come with the package. Any other kind is named MODULE:CLASS, as an entry point is."""

CANDIDATES = "candidates"
"""In a run's `of`, this name stands for the run that `candidates.first_stage` names."""


OF_ROUND = "listwise@round"
"""Prefix of the stages of earlier rounds, as in listwise@round1."""


class RunSettings(Section):
    """The settings that every run has; a kind adds its own."""

    kind: str = Field(description=f"{', '.join(KINDS)}, or MODULE:CLASS of your own")
    title: str = Field(default="", description="the run's title in tables and model cards; its name if empty")


class FirstStageSettings(RunSettings):
    """The settings that every first stage has."""

    depth: int | None = Field(
        default=None, ge=1, le=10_000, description="passages kept of a query; candidates.depth if empty"
    )


def depth_of(settings: RunSettings, config: PipelineConfig, split: str = "") -> int:
    """Return how many passages of a query a first stage keeps; of training queries it may keep fewer."""
    own: int | None = getattr(settings, "depth", None)
    depth, limit = own or config.candidates.depth, config.candidates.train_depth
    return min(depth, limit) if limit and split == "train" else depth


def depth_key(settings: RunSettings, config: PipelineConfig) -> dict[str, int]:
    """Return the part of a first stage's key that its depths are."""
    depth, train_depth = (depth_of(settings, config, split) for split in ("", "train"))
    return {"depth": depth, **({"train_depth": train_depth} if train_depth < depth else {})}


class RunInMaking(Protocol):
    """One run while it is made: its settings, the runs it reads, and where its rows go."""

    name: str
    settings: Any
    config: PipelineConfig
    store: Store
    artifact: Artifact

    @property
    def splits(self) -> list[str]:
        """The splits to make: all splits for a first stage; otherwise all held-out splits, or train."""

    def source(self, name: str) -> Artifact:
        """Return the artifact of a run that this one reads, on the same splits."""

    def has(self, name: str, split: str) -> bool:
        """Return whether another run has rows of a split."""

    def rows(self, name: str, split: str) -> pa.Table:
        """Return another run's rows in stored order."""

    def read(self, name: str, split: str) -> pa.Table:
        """Return the rows of another run, best first within each query."""

    def write(self, split: str, rows: pa.Table) -> None:
        """Store this run's rows of a split: (query_id, passage_id, rank, score); equal scores are ordered by rank."""


class RunKind:
    """How runs of one kind are made. A subclass sets `version` and `Settings` and writes `inputs` and `make`."""

    version: ClassVar[int] = 1
    """Increase it when `make` produces different rows from the same settings and inputs."""
    Settings: ClassVar[type[RunSettings]]
    has_scores: ClassVar[bool] = True
    """False for candidates that a dataset provides shuffled: their stored scores and order mean nothing."""

    def is_first_stage(self, settings: Any, config: PipelineConfig) -> bool:
        """Return whether the run finds passages by itself; such a run covers every split at once, train included."""
        return False

    def inputs(self, settings: Any, config: PipelineConfig) -> tuple[str, ...]:
        """Return the stages whose results `make` reads."""
        raise NotImplementedError

    def reads(self, settings: Any) -> tuple[str, ...]:
        """Return the runs that `make` reads: those that the setting `of` names, if the kind has one."""
        of = getattr(settings, "of", ())
        return (of,) if isinstance(of, str) else tuple(of)

    def make(self, run: RunInMaking) -> dict[str, Any]:
        """Write the run's rows and return facts for its manifest."""
        raise NotImplementedError

    def is_worth_making(self, settings: Any, config: PipelineConfig) -> bool:
        """Return whether a pipeline makes the run; False if it would rank exactly as one of the runs it reads."""
        return True

    def check_train(self, name: str, settings: Any) -> None:
        """Raise ConfigError if a run of this name and these settings cannot rank the training queries alone."""

    def digest(self, settings: Any, config: PipelineConfig) -> str:
        """Return the digest of the files that the run reads from outside; it becomes the setting `fingerprint`."""
        return ""

    def key(self, settings: Any, config: PipelineConfig) -> dict[str, Any]:
        """Return the settings that the run's rows depend on, besides its inputs."""
        return settings.model_dump(mode="json", exclude={"title"})  # type: ignore[no-any-return]


@cache
def kind_named(name: str) -> RunKind:
    """Return a kind by its short name or by MODULE:CLASS."""
    module, colon, attribute = KINDS.get(name, name).partition(":")
    try:
        found = getattr(import_module(module), attribute) if colon else None
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"The kind {name} of a run cannot be imported: {error}; install its module.") from None
    if not (isinstance(found, type) and issubclass(found, RunKind)):
        known = ", ".join(KINDS)
        raise ConfigError(f"{name} is no kind of run: choose one of {known}, or MODULE:CLASS of your own.")
    return found()


def read_all(runs: dict[str, Any]) -> dict[str, RunSettings]:
    """Return the settings of all runs by name, in the order given."""
    return {name: read_settings(name, values) for name, values in runs.items()}


def with_rounds(runs: dict[str, RunSettings], names: Sequence[str]) -> dict[str, RunSettings]:
    """Return the runs with one for the model of each of these rounds, placed before those of the last round."""
    others = {name: each for name, each in runs.items() if not str(getattr(each, "model", "")).startswith(OF_ROUND)}
    if taken := next((name for name in names if name in others), ""):
        raise ConfigError(f"runs.{taken} exists already, but listwise.rounds adds a run of this name: rename yours.")
    added = read_all(
        {
            name: {"kind": "rerank", "model": f"listwise@{name}", "title": name.replace("round", "round ")}
            for name in names
        }
    )
    last = [place for place, each in enumerate(others.values()) if getattr(each, "model", "") in ("listwise", "soup")]
    before = list(others)[: min(last, default=len(others))]
    return {**{name: others[name] for name in before}, **added, **others}


def read_settings(name: str, values: Any) -> RunSettings:
    """Return the settings of one named run; raise ConfigError if they are wrong."""
    if isinstance(values, RunSettings):
        return values
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise ConfigError(f"The run {name} has no kind: set runs.{name}.kind to one of {', '.join(KINDS)}.")
    model = kind_named(values["kind"]).Settings
    try:
        return model.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"])
        fields, kind = ", ".join(model.model_fields), values["kind"]
        if problem["type"] == "extra_forbidden":
            raise ConfigError(f"runs.{name}.{key} does not exist: a run of kind {kind} has {fields}.") from None
        if problem["type"] == "missing":
            raise ConfigError(f"runs.{name}.{key} is missing: a run of kind {kind} needs it.") from None
        reason = problem["msg"].removeprefix("Value error, ")
        raise ConfigError(
            f"runs.{name}.{key}={problem['input']} cannot be used: {reason[0].lower()}{reason[1:]}; change it with "
            f"--set runs.{name}.{key}=..."
        ) from None
