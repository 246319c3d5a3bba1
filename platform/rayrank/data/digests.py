"""Digests of the files and folders that a configuration names: changed content changes the keys of artifacts."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.flow import is_run, run_named, used_runs
from rayrank.core.overrides import apply
from rayrank.core.paths import absolute_path
from rayrank.core.phase_config import SCRATCH
from rayrank.core.pretrained import content_digest, resolved
from rayrank.data.labelled_questions import labels_digest
from rayrank.data.sources.lines import file_format, opened

_folder_digest = cache(content_digest)


def _run_digest(run: str, config: PipelineConfig) -> str:
    if not run or is_run(run, config):
        return ""
    try:
        return hashlib.sha256(Path(run).read_bytes()).hexdigest()[:16]
    except (OSError, ValueError) as error:  # a ValueError for a path with a zero byte
        names, reason = ", ".join(config.runs), getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"The run {run} cannot be read: {reason}; name a TREC run file or one of {names}.") from None


def _text_digest(file: str, key: str, expected: str) -> str:
    """Return the digest of a text, the same whether it is compressed or not; `key` is the setting that names it."""
    digest = hashlib.sha256()
    try:
        with opened(file) as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    except DatasetError as error:
        reason = str(error).removeprefix(f"The file {file} ").partition(":")[0].rstrip(".")
        raise ConfigError(f"{key}={file} {reason}: name {expected}, or leave it empty.") from None
    return digest.hexdigest()[:16]


def _dataset_digest(config: PipelineConfig) -> str:
    """Return the digest of the source, followed by that of the file of query types if there is one."""
    source, file = config.dataset.fingerprint.partition("+")[0], config.dataset.types_file
    if not file:
        return source
    content = _text_digest(file, "dataset.types_file", "a file of `query_id<TAB>type` lines")
    return f"{source}+{file_format(file)}-{content}"


DIGESTS: Mapping[str, Callable[[PipelineConfig], str]] = {
    "text.tokenizer": lambda config: _folder_digest(config.text.tokenizer, "text.tokenizer"),
    "encoder.name": lambda config: _folder_digest(config.encoder.name, "encoder.name"),
    "dense.encoder": lambda config: _folder_digest(config.dense.encoder, "dense.encoder"),
    "doc2query.model": lambda config: (
        "" if config.doc2query.model == SCRATCH else _folder_digest(config.doc2query.model, "doc2query.model")
    ),
    "typer.labels": lambda config: labels_digest(config.typer.labels, "typer.labels") if config.typer.labels else "",
    "domain.reference": lambda config: (
        _text_digest(config.domain.reference, "domain.reference", "a plain-text file")
        if config.domain.reference
        else ""
    ),
    "dataset.types_file": _dataset_digest,
    **dict.fromkeys(
        ("evaluate.run", "evaluate.baseline"),
        lambda config: _run_digest(config.evaluate.run, config) + _run_digest(config.evaluate.baseline, config),
    ),
}
"""Settings that name a file or folder; the digest of its content is stored as the `fingerprint` of their section."""

_PLACES: Mapping[str, Callable[[PipelineConfig], str]] = {
    "text.tokenizer": lambda config: resolved(config.text.tokenizer),
    "encoder.name": lambda config: resolved(config.encoder.name),
    "dense.encoder": lambda config: resolved(config.dense.encoder),
    "doc2query.model": lambda config: (
        SCRATCH if config.doc2query.model == SCRATCH else resolved(config.doc2query.model)
    ),
    "typer.labels": lambda config: absolute_path(config.typer.labels) if config.typer.labels else "",
    "dataset.types_file": lambda config: absolute_path(config.dataset.types_file) if config.dataset.types_file else "",
}
"""Settings whose local path is made absolute, because Ray workers run in other working directories."""


def digested(config: PipelineConfig) -> PipelineConfig:
    """Return a job's configuration with fresh digests of all files and folders it names, and with absolute paths."""
    _folder_digest.cache_clear()
    return _digested(config, DIGESTS, known=())


def varied(config: PipelineConfig, changes: Mapping[str, Any]) -> PipelineConfig:
    """Return a configuration with dotted keys replaced, and with the digests of the files and folders they name.

    A folder is read once per process: a sweep asks for the same one many times.
    """
    complete = [name for name, settings in config.runs.items() if getattr(settings, "fingerprint", "")]
    known = [name for name in complete if not any(f"{key}.".startswith(f"runs.{name}.") for key in changes)]
    return _digested(apply(config.model_dump(), changes), DIGESTS.keys() & changes.keys(), known)


def _digested(config: PipelineConfig, keys: Iterable[str], known: Sequence[str]) -> PipelineConfig:
    """Return the configuration with digests of the files that `keys` name, and of the files of runs not in `known`."""
    found: dict[str, str] = {}
    for key in keys:
        found[f"{key.partition('.')[0]}.fingerprint"] = DIGESTS[key](config)
        if key in _PLACES:
            found[key] = _PLACES[key](config)
    used = used_runs(config)
    for name in config.runs:
        name, settings, kind = run_named(name, config)
        # The candidates of a dataset may be hundreds of gigabytes, so they are read only if a run of them is used.
        if settings.kind != "file" and name not in used:
            continue
        if "fingerprint" in type(settings).model_fields and name not in known:
            found[f"runs.{name}.fingerprint"] = kind.digest(settings, config)
    return apply(config.model_dump(), found) if found else config
