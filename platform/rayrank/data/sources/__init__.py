"""Sources of passages, queries and judgments: `open_source` opens one, `fingerprint` digests its content."""

import hashlib
import json
from collections.abc import Callable
from pathlib import PurePosixPath

import fsspec

from rayrank.core.config import GROUP_FIELD, PASSAGE_TEMPLATE, TYPE_FIELD, DatasetConfig
from rayrank.core.errors import ConfigError, DatasetError, RayrankError
from rayrank.core.paths import absolute_path
from rayrank.core.progress import progress
from rayrank.data.sources.beir import Beir
from rayrank.data.sources.car import Car
from rayrank.data.sources.irds import Irds
from rayrank.data.sources.locate import file_digest, listed
from rayrank.data.sources.mnli import Mnli
from rayrank.data.sources.msmarco import MsMarco
from rayrank.data.sources.msmarco_qa import MsMarcoQa
from rayrank.data.sources.source import Source
from rayrank.data.sources.trec import Trec

__all__ = ["KINDS", "absolute", "candidates_digest", "fingerprint", "open_source"]

KINDS: dict[str, Callable[[str], Source]] = {
    "beir": Beir,
    "msmarco": MsMarco,
    "msmarco-qa": MsMarcoQa,
    "trec": Trec,
    "car": Car,
    "irds": Irds,
    "mnli": Mnli,
}
"""The kinds of `dataset.source`, written KIND:PATH; `demo` has no path."""


def open_source(config: DatasetConfig) -> Source:
    """Return the source that `dataset.source` names, its files found but not yet read."""
    for key, usual in (
        ("type_field", TYPE_FIELD),
        ("group_field", GROUP_FIELD),
        ("passage_template", PASSAGE_TEMPLATE),
        ("fields", ()),
    ):
        if (value := getattr(config, key)) != usual and not config.source.startswith("beir:"):
            shown = value.replace("\n", "\\n") if isinstance(value, str) else f"[{', '.join(value)}]"
            raise ConfigError(
                f"dataset.{key}={shown} is read from a beir:DIR only, not from {config.source}: leave it out."
            )
    if config.source == "demo":
        from rayrank.data.sources.demo import Demo

        return Demo(config.demo)
    kind, _, path = config.source.partition(":")
    if kind not in KINDS or not path.strip(", "):
        forms = ", ".join(f"{kind}:{'NAME' if kind == 'irds' else 'PATH'}" for kind in KINDS)
        raise DatasetError(f"The dataset {config.source!r} is not one of demo, {forms}: change --dataset.")
    try:
        for each in _paths(kind, path):
            fsspec.url_to_fs(each)
        if kind == "beir":
            return Beir(path, config.type_field, config.group_field, config.passage_template)
        return KINDS[kind](path)
    except RayrankError:
        raise
    except Exception as error:  # each storage library has its own types, as for a host that does not answer
        # A bug in reading local files keeps its traceback.
        if "://" not in path and not isinstance(error, OSError | ImportError):
            raise
        raise DatasetError(f"The dataset {config.source} cannot be reached: {error}; change --dataset.") from None


def absolute(source: str) -> str:
    """Return `dataset.source` with local paths made absolute, because workers run in other working directories."""
    kind, colon, path = source.partition(":")
    if kind in ("demo", "irds") or not path:
        return source
    return f"{kind}{colon}{','.join(map(absolute_path, _paths(kind, path)))}"


def _paths(kind: str, path: str) -> list[str]:
    """Return the files and folders that a source names: several for msmarco-qa and mnli, else one."""
    return listed(path) if kind in ("msmarco-qa", "mnli") else [path]


def fingerprint(source: Source) -> str:
    """Return a digest of a source's content; the folder of local files does not matter."""
    return _digest(source, source.files())


def candidates_digest(source: Source) -> str:
    """Return a digest of the candidates that come with a source."""
    return _digest(source, source.candidate_files())


def _digest(source: Source, files: list[str]) -> str:
    digest = hashlib.sha256()
    # As JSON, so that no two lists of values are written as the same bytes.
    digest.update(json.dumps([type(source).__name__, source.identity()]).encode())
    with progress("fingerprint", len(files), "files") as advance:
        for path in files:
            content = file_digest(path, "check what --dataset names")
            digest.update(json.dumps([PurePosixPath(path).name, content]).encode())
            advance(1)
    return digest.hexdigest()
