"""Search spaces: the settings that a sweep varies and their values, checked before anything is started."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.trial import Trial

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import TextLoader, yaml_reason
from rayrank.data.digests import varied

Changes = dict[str, Any]
"""The values that a trial sets in the configuration, by dotted key."""

NEGATIVES, THRESHOLD, SEED = "listwise.negatives", "noise.threshold", "training.seed"
EPOCHS, STEPS = "listwise.epochs", "listwise.max_steps"
MEASURE = ("training.metric", "dataset.relevant_from")
"""Settings that define the dev metric, by which trials are compared."""

NUM_SEEDS = 3
"""Trainings with different seeds for each number of negatives in Figure 5."""


@dataclass(frozen=True)
class Space:
    """The values that each setting may take; a grid tries every combination once, in order."""

    name: str
    dimensions: Mapping[str, BaseDistribution]
    grid: bool = False
    widened: tuple[str, ...] = ()
    """Descriptions of the ranges that were widened to include the configuration's value, which is tried first."""

    def suggest(self, trial: Trial) -> Changes:
        """Return the values of an Optuna trial; values that it does not have yet are sampled."""
        return {key: _suggested(trial, key, dimension) for key, dimension in self.dimensions.items()}

    def initial_points(self, config: PipelineConfig) -> list[Changes]:
        """Return the settings to try first: all combinations of a grid, or the configuration's own values."""
        if not self.grid:
            return [{key: configured_value(config, key) for key in self.dimensions}]
        values = [list(_grid_values(dimension)) for dimension in self.dimensions.values()]
        return [dict(zip(self.dimensions, point, strict=True)) for point in itertools.product(*values)]

    def as_json(self) -> dict[str, str]:
        """Return each dimension as JSON, for a digest of the space."""
        return {key: distribution_to_json(dimension) for key, dimension in self.dimensions.items()}


def open_space(name: str, config: PipelineConfig, grid: bool = False) -> Space:
    """Return a built-in space or one from a YAML file, checked against the configuration."""
    if name in SPACES:
        entries: Mapping[Any, Any] = SPACES[name](config)
        grid = grid or name == "n_minus"
    else:
        entries = _from_file(name)
    if swept := next((key for key in MEASURE if key in entries), ""):
        raise ConfigError(f"--space {name}: {swept} cannot be swept, since trials are compared by it; use --set.")
    dimensions = {str(key): _dimension(str(key), entry, config, name) for key, entry in entries.items()}
    space = Space(name, dimensions, grid)
    if grid:
        return _checked_grid(space)
    wide = dict(_widened(space, config))
    widened = tuple(f"{key} {_text(wide[key])}" for key in wide if wide[key] != dimensions[key])
    return replace(space, dimensions=wide, widened=widened)


def configured_value(config: PipelineConfig, key: str) -> Any:
    """Return the configuration's value of a dotted key."""
    return reduce(
        lambda place, name: place[name] if isinstance(place, dict) else getattr(place, name), key.split("."), config
    )


def _default(config: PipelineConfig) -> dict[str, Any]:
    return {
        NEGATIVES: {"low": 1, "high": 15},
        THRESHOLD: {"low": 0.1, "high": 1.0},
        "listwise.lr": {"low": 1e-6, "high": 1e-4, "log": True},
    }


def _figure_five(config: PipelineConfig) -> dict[str, Any]:
    first = config.training.seed
    return {SEED: list(range(first, first + NUM_SEEDS)), NEGATIVES: {"low": 1, "high": 15}}


SPACES = {"default": _default, "n_minus": _figure_five}


def _from_file(name: str) -> Mapping[Any, Any]:
    known = ", ".join(SPACES)
    try:
        content = yaml.load(Path(name).read_text(encoding="utf-8"), TextLoader)
    except OSError as error:
        raise ConfigError(
            f"--space {name} cannot be read: {error.strerror}; name one of {known}, or a YAML file."
        ) from None
    except (yaml.YAMLError, ValueError, AttributeError) as error:
        raise ConfigError(f"--space {name} is not YAML: {yaml_reason(error)}.") from None
    if not isinstance(content, dict) or not content:
        raise ConfigError(
            f"--space {name} must map settings to values, as in 'listwise.lr: {{low: 1e-6, high: 1e-4, log: true}}'."
        )
    return content


def _dimension(key: str, entry: Any, config: PipelineConfig, name: str) -> BaseDistribution:
    if isinstance(entry, list):
        given = [_value(key, value, config, name) for value in entry]
        values = [value for place, value in enumerate(given) if value not in given[:place]]
        if not values:
            raise ConfigError(f"--space {name}: {key} is an empty list; list the values to try.")
        dimension: BaseDistribution = CategoricalDistribution(tuple(values))
    elif isinstance(entry, dict) and {"low", "high"} <= entry.keys() <= {"low", "high", "log", "step"}:
        values = [_value(key, entry[end], config, name) for end in ("low", "high")]
        dimension = _range(key, entry, values, name)
    else:
        raise ConfigError(
            f"--space {name}: {key}={entry} is no range of values; write {{low: ..., high: ...}}, optionally with "
            f"log: true or step: ..., or a list."
        )
    models = {flow.key("listwise", varied(config, {key: value})) for value in values}
    if models <= {flow.key("listwise", config)}:
        raise ConfigError(f"--space {name}: {key} changes nothing about the model, whatever its value; leave it out.")
    return dimension


def _value(key: str, value: Any, config: PipelineConfig, name: str) -> Any:
    """Return a value of the space file, converted to the type of its setting."""
    try:
        return configured_value(varied(config, {key: value}), key)
    except ConfigError as error:
        reason = str(error).partition("; change it with")[0].rstrip(".")
        raise ConfigError(f"--space {name}: {reason}; change it there.") from None


def _range(key: str, entry: Mapping[str, Any], ends: list[Any], name: str) -> BaseDistribution:
    low, high = ends
    log = str(entry.get("log", "false")).lower()
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise ConfigError(f"--space {name}: {key} is not a number, so it has no range; give a list of values.")
    if low >= high:
        raise ConfigError(f"--space {name}: the range of {key} from {low} to {high} is empty; low must be below high.")
    if log not in ("true", "false"):
        raise ConfigError(f"--space {name}: {key} has log={entry['log']}; write true or false.")
    if log == "true" and low <= 0:
        raise ConfigError(
            f"--space {name}: {key} has a log scale from {low}, and the logarithm of zero or less does not exist; "
            f"raise low or leave log out."
        )
    kind = IntDistribution if isinstance(low, int) and isinstance(high, int) else FloatDistribution
    options: dict[str, Any] = {"log": True} if log == "true" else {}
    try:
        if "step" in entry:
            options["step"] = step = (int if kind is IntDistribution else float)(entry["step"])
            # Floating-point error may make the difference slightly smaller than the step.
            if not 0 < step <= (high - low) * (1 + 1e-9):
                raise ValueError(f"a step of {step} does not fit between {low} and {high}")
        return kind(low, high, **options)
    except (ValueError, TypeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(f"--space {name}: the range of {key} cannot be used: {reason}; change it there.") from None


def _widened(space: Space, config: PipelineConfig) -> Iterator[tuple[str, BaseDistribution]]:
    """Yield the dimensions; one that excludes the configuration's value, which is tried first, is widened to it."""
    for key, dimension in space.dimensions.items():
        own = configured_value(config, key)
        if isinstance(dimension, CategoricalDistribution):
            choices = dimension.choices if own in dimension.choices else (own, *dimension.choices)
            yield key, CategoricalDistribution(choices)
        elif not isinstance(own, int | float):
            raise ConfigError(
                f"--space {space.name}: {key} has no configured value to try first; set one with --set {key}=..."
            )
        else:
            assert isinstance(dimension, FloatDistribution | IntDistribution)
            low: Any = min(dimension.low, own)
            if dimension.log and low <= 0:
                raise ConfigError(
                    f"--space {space.name}: {key} has a log scale, and the sweep tries {key}={own} first; set a value "
                    f"above zero with --set."
                )
            step: Any = dimension.step if _is_on_step(own, dimension) else _no_step(dimension)
            yield key, type(dimension)(low, max(dimension.high, own), log=dimension.log, step=step)  # type: ignore[arg-type]


def _text(dimension: BaseDistribution) -> str:
    if isinstance(dimension, CategoricalDistribution):
        return f"one of {', '.join(map(str, dimension.choices))}"
    assert isinstance(dimension, FloatDistribution | IntDistribution)
    step = f" in steps of {dimension.step:g}" if dimension.step not in (None, 1) else ""
    return f"from {dimension.low:g} to {dimension.high:g}{step}"


def _is_on_step(own: float, dimension: FloatDistribution | IntDistribution) -> bool:
    if dimension.step is None or dimension.step == 1:
        return True
    places = (own - dimension.low) / dimension.step
    return dimension.low <= own <= dimension.high and abs(places - round(places)) < 1e-9


def _no_step(dimension: FloatDistribution | IntDistribution) -> Any:
    return 1 if isinstance(dimension, IntDistribution) else None


def _checked_grid(space: Space) -> Space:
    for key, dimension in space.dimensions.items():
        if isinstance(dimension, FloatDistribution) and dimension.step is None:
            raise ConfigError(
                f"--space {space.name}: {key} is a range without steps, which a grid cannot enumerate; give it a step "
                f"or a list of values."
            )
    return space


def _grid_values(dimension: BaseDistribution) -> Iterator[Any]:
    if isinstance(dimension, CategoricalDistribution):
        yield from dimension.choices
    elif isinstance(dimension, IntDistribution):
        yield from range(dimension.low, dimension.high + 1, dimension.step)
    elif isinstance(dimension, FloatDistribution) and dimension.step:
        for place in range(round((dimension.high - dimension.low) / dimension.step) + 1):
            yield dimension.low + place * dimension.step


def _suggested(trial: Trial, key: str, dimension: BaseDistribution) -> Any:
    if isinstance(dimension, CategoricalDistribution):
        return trial.suggest_categorical(key, dimension.choices)
    if isinstance(dimension, IntDistribution):
        return trial.suggest_int(key, dimension.low, dimension.high, step=dimension.step, log=dimension.log)
    assert isinstance(dimension, FloatDistribution)
    return trial.suggest_float(key, dimension.low, dimension.high, step=dimension.step, log=dimension.log)
