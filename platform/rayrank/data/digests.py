"""What a configuration names outside of itself, and the digests that tell one content from another."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.flow import RUNS
from rayrank.core.overrides import apply
from rayrank.core.pretrained import content_digest
from rayrank.data.labelled_questions import labels_digest
from rayrank.data.sources.lines import opened

_folder_digest = cache(content_digest)


def _run_digest(run: str) -> str:
    if run in RUNS:
        return ""
    try:
        return hashlib.sha256(Path(run).read_bytes()).hexdigest()[:16]
    except OSError as error:
        names = ", ".join(RUNS)
        raise ConfigError(
            f"The run {run} cannot be read: {error.strerror}; name a TREC run file or one of {names}."
        ) from None


def _reference_digest(file: str) -> str:
    """Return the digest of a reference text, the same whether it is compressed or not."""
    digest = hashlib.sha256()
    try:
        with opened(file) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except DatasetError as error:
        reason = str(error).removeprefix(f"The file {file} ").partition(":")[0].rstrip(".")
        raise ConfigError(f"domain.reference={file} {reason}: name a plain-text file, or leave it empty.") from None
    return digest.hexdigest()[:16]


DIGESTS: Mapping[str, Callable[[PipelineConfig], str]] = {
    "text.tokenizer": lambda config: _folder_digest(config.text.tokenizer, "text.tokenizer"),
    "encoder.name": lambda config: _folder_digest(config.encoder.name, "encoder.name"),
    "typer.labels": lambda config: labels_digest(config.typer.labels, "typer.labels") if config.typer.labels else "",
    "domain.reference": lambda config: _reference_digest(config.domain.reference) if config.domain.reference else "",
    "evaluate.run": lambda config: (
        _run_digest(config.evaluate.run) + (_run_digest(config.evaluate.baseline) if config.evaluate.baseline else "")
    ),
}
"""Settings that name a file or folder, whose digest is their section's fingerprint."""


def digested(config: PipelineConfig) -> PipelineConfig:
    """Return a job's configuration with the digests of all it names, found anew."""
    _folder_digest.cache_clear()
    return _digested(config, DIGESTS)


def varied(config: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """Return a run's configuration with dotted keys replaced, and with the digests of what those name.

    A folder is looked at once in a job: sweeps ask for the same one many times.
    """
    return _digested(apply(config.model_dump(), changes), DIGESTS.keys() & changes.keys())


def _digested(config: PipelineConfig, keys: Iterable[str]) -> PipelineConfig:
    found = {f"{key.partition('.')[0]}.fingerprint": DIGESTS[key](config) for key in keys}
    return apply(config.model_dump(), found) if found else config
