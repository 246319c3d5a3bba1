"""What a configuration names outside of itself, and the digests that tell one content from another."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.flow import is_run, run_named, used_runs
from rayrank.core.overrides import apply
from rayrank.core.pretrained import content_digest
from rayrank.data.labelled_questions import labels_digest

_folder_digest = cache(content_digest)


def _run_digest(run: str, config: PipelineConfig) -> str:
    if not run or is_run(run, config):
        return ""
    try:
        return hashlib.sha256(Path(run).read_bytes()).hexdigest()[:16]
    except OSError as error:
        names = ", ".join(config.runs)
        raise ConfigError(
            f"The run {run} cannot be read: {error.strerror}; name a TREC run file or one of {names}."
        ) from None


DIGESTS: Mapping[str, Callable[[PipelineConfig], str]] = {
    "text.tokenizer": lambda config: _folder_digest(config.text.tokenizer, "text.tokenizer"),
    "encoder.name": lambda config: _folder_digest(config.encoder.name, "encoder.name"),
    "typer.labels": lambda config: labels_digest(config.typer.labels, "typer.labels") if config.typer.labels else "",
    "evaluate.run": lambda config: (
        _run_digest(config.evaluate.run, config) + _run_digest(config.evaluate.baseline, config)
    ),
}
"""Settings that name a file or folder, whose digest is their section's fingerprint."""


def digested(config: PipelineConfig) -> PipelineConfig:
    """Return a job's configuration with the digests of all it names, found anew."""
    _folder_digest.cache_clear()
    return _digested(config, DIGESTS, known=())


def varied(config: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """Return a run's configuration with dotted keys replaced, and with the digests of what those name.

    A folder is looked at once in a job: sweeps ask for the same one many times.
    """
    known = [name for name, settings in config.runs.items() if getattr(settings, "fingerprint", "")]
    return _digested(apply(config.model_dump(), changes), DIGESTS.keys() & changes.keys(), known)


def _digested(config: PipelineConfig, keys: Iterable[str], known: Sequence[str]) -> PipelineConfig:
    """Return the configuration with new digests of what some keys name, and of the files of runs that have none yet."""
    found = {f"{key.partition('.')[0]}.fingerprint": DIGESTS[key](config) for key in keys}
    for name in used_runs(config):
        name, settings, kind = run_named(name, config)
        if "fingerprint" in type(settings).model_fields and name not in known:
            found[f"runs.{name}.fingerprint"] = kind.digest(settings, config)
    return apply(config.model_dump(), found) if found else config
