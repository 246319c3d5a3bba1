"""Build a configuration from a preset, a YAML file and `--set a.b=c`; a mistake is a one-sentence ConfigError."""

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from rayrank.core import flow_checks
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.presets import PRESETS

Config = TypeVar("Config", bound=BaseModel)

_RESOLVED = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")


SHOWN = 16
"""The largest number of settings of a section that an error message lists."""


class TextLoader(yaml.SafeLoader):
    """YAML in which values such as `12`, `1e-5` and `no` remain strings.

    They are parsed later by the setting's type; only null is converted.
    """


TextLoader.yaml_implicit_resolvers = {
    start: [(tag, pattern) for tag, pattern in resolvers if tag in _RESOLVED]
    for start, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def build(preset: str, file: str | None = None, assignments: Sequence[str] = ()) -> PipelineConfig:
    """Return the preset changed first by the file, then by each `key=value` in turn."""
    if preset not in PRESETS:
        raise ConfigError(f"--preset {preset} does not exist: choose one of {', '.join(PRESETS)}.")
    values = PRESETS[preset]().model_dump()
    return apply(values, {**(_from_file(file) if file else {}), **assigned(assignments)})


def assigned(assignments: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the value of each key in `key=value` texts, which follow an option of a command."""
    changes = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise ConfigError(f"{option} {assignment} has no value: write {option} {key or 'KEY'}=VALUE.")
        if not key.strip():
            raise ConfigError(f"{option} {assignment} names no setting: write {option} KEY=VALUE.")
        changes[key.strip()] = _value(f"{option} {assignment}", text)
    return changes


def apply(values: dict[str, Any], changes: Mapping[str, Any]) -> PipelineConfig:
    """Return a pipeline's configuration with dotted keys replaced."""
    config = changed(PipelineConfig, values, changes, option="--set ")
    flow_checks.check(config)
    return config


def changed(model: type[Config], values: dict[str, Any], changes: Mapping[str, Any], option: str = "") -> Config:
    """Return any configuration with dotted keys replaced; `option` is what stands before `key=value` in a command."""
    named = {name for name, field in model.model_fields.items() if get_origin(field.annotation) is dict}
    known = [key for key, _ in flatten(values)]
    _change_kinds(values, named, changes)
    for key, value in changes.items():
        section, _, entry = key.partition(".")
        if section in named and entry:
            _change_named(values[section], entry, value)
            continue
        if key not in known:
            raise ConfigError(_unknown(key, known, model))
        *sections, name = key.split(".")
        place = values
        for section in sections:
            place = place[section]
        # An empty value means the empty string for a text setting, and None for any other.
        place[name] = None if value == "" and not isinstance(place[name], str) else value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_sentence(error, option)) from None


def as_file(config: PipelineConfig) -> dict[str, Any]:
    """Return the content of a file for --config that gives this configuration back, whatever the preset."""
    values = config.model_dump(mode="json")
    values["runs"] |= dict.fromkeys(removed_runs(config.runs))
    return values


def removed_runs(runs: Mapping[str, Any]) -> list[str]:
    """Return the runs of any preset that `runs` lacks; a --config file removes them by an empty value."""
    return sorted({name for preset in PRESETS.values() for name in preset().runs} - runs.keys())


def _change_kinds(values: dict[str, Any], named: Collection[str], changes: Mapping[str, Any]) -> None:
    """Change the kinds of existing entries first: other changes are settings of the new kind, whatever their order."""
    for key, value in changes.items():
        section, _, entry = key.partition(".")
        name, _, setting = entry.partition(".")
        if section in named and setting == "kind" and name in values[section]:
            _change_named(values[section], entry, value)


def _change_named(entries: dict[str, Any], key: str, value: Any) -> None:
    """Change, add or (with an empty value) remove one entry of a section.

    It is a section whose entries the user names, such as `runs`.
    """
    name, _, setting = key.partition(".")
    if not setting:
        entries.pop(name, None)
        if value not in (None, ""):
            entries[name] = value
        return
    entry = entries.setdefault(name, {})
    if setting == "kind" and entry.get("kind", value) != value:
        # The entry's settings belong to its former kind.
        entry.clear()
    entry[setting] = None if value == "" and not isinstance(entry.get(setting), str) else value


def _from_file(file: str) -> dict[str, Any]:
    try:
        content = yaml.load(Path(file).read_text(encoding="utf-8"), TextLoader) or {}
        if isinstance(content, dict):
            return dict(flatten(content))
    except OSError as error:
        raise ConfigError(f"--config {file} cannot be read: {error.strerror}.") from None
    except RecursionError:
        raise ConfigError(f"--config {file} cannot be used: a section contains itself.") from None
    except (yaml.YAMLError, ValueError, AttributeError) as error:
        raise ConfigError(f"--config {file} is not YAML: {yaml_reason(error)}.") from None
    raise ConfigError(f"--config {file} must map sections to settings, as in 'candidates: {{depth: 100}}'.")


def flatten(content: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield nested settings under their dotted keys."""
    for name, value in content.items():
        if isinstance(value, Mapping):
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _value(assignment: str, text: str) -> Any:
    try:
        return yaml.load(text, TextLoader) if text.strip() else ""
    except (yaml.YAMLError, ValueError, AttributeError):
        raise ConfigError(f"{assignment} has a value that is not YAML: put quotes around it.") from None


def yaml_reason(error: Exception) -> str:
    """Return why a text cannot be read as YAML, on one line."""
    if isinstance(error, yaml.YAMLError | UnicodeDecodeError):
        return " ".join(str(error).split()).rstrip(".")
    # PyYAML lets the errors of int() and of its date parser through.
    return "a value does not have the type that its !! tag names"


def _unknown(key: str, known: Sequence[str], model: type[BaseModel]) -> str:
    if inside := sorted(name for name in known if name.startswith(f"{key}.")):
        shown = [*inside[:SHOWN], *(["..."] if len(inside) > SHOWN else [])]
        return f"{key} is a section, not a setting: set {' or '.join(shown)}."
    section, _, name = key.rpartition(".")
    # First look for a setting with exactly this name in another section, preferably one with a similar name; only then
    # for a key with a similar spelling.
    alike = {other: other.split(".")[-2:][0] for other in known if other.rpartition(".")[2] == name}
    similar = difflib.get_close_matches(section.rpartition(".")[2], alike.values(), n=1, cutoff=0.5)
    near = [other for other in alike if alike[other] in similar] or [*alike]
    near = near or difflib.get_close_matches(key, known, n=1)
    if near:
        return f"The setting {key} does not exist: did you mean {near[0]}?"
    sections = ", ".join(model.model_fields)
    return f"The setting {key} does not exist: the sections are {sections}."


def _sentence(error: ValidationError, option: str) -> str:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    reason = problem["msg"].removeprefix("Value error, ")
    if not key:
        return f"{reason}."
    value = "null" if problem["input"] is None else problem["input"]
    return f"{key}={value} cannot be used: {reason[0].lower()}{reason[1:]}; change it with {option}{key}=..."
