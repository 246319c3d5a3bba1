"""Questions with their types in a file of lines: `TYPE:subtype question`, as TREC's, or `type<TAB>question`."""

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from rayrank.core.errors import ConfigError, DatasetError
from rayrank.data.sources.lines import opened

TREC = {
    "ABBR": "abbreviation",
    "DESC": "description",
    "ENTY": "entity",
    "HUM": "person",
    "LOC": "location",
    "NUM": "numeric",
}
"""TREC's coarse types in the words of the re-ranker's input; other types stay as they are."""

_COARSE = re.compile(r"([^\s:]+):\S* +(\S.*)")
_TABBED = re.compile(r" *([^\t]*[^\t ]) *\t\s*(\S.*)")


class Labelled(NamedTuple):
    """A question and its type."""

    query_type: str
    text: str


def read_labelled(file: str, key: str) -> list[Labelled]:
    """Return a file's questions; `key` is the setting or the option to name when it cannot be used."""
    lines = enumerate(_decoded(_content(file, key)).split("\n"), 1)
    rows = [_parse(line, f"{key}={file} line {number}") for number, line in lines if line.strip()]
    if not rows:
        raise ConfigError(f"{key}={file} has no questions: name a file with one a line, each behind its type.")
    return rows


def labels_digest(file: str, key: str) -> str:
    """Return what tells a file of labels from any other, wherever it lies and however it is compressed."""
    return hashlib.sha256(_content(file, key)).hexdigest()[:16]


def type_names(types: Sequence[str], key: str) -> list[str]:
    """Return the different types, sorted; less than two cannot be told apart."""
    names = sorted(set(types))
    if len(names) < 2:
        raise ConfigError(f"{key} has questions of the type {names[0]} only: name labels of two types at least.")
    return names


def _content(file: str, key: str) -> bytes:
    try:
        with opened(file) as stream:
            return stream.read()
    except DatasetError as error:
        reason = str(error).removeprefix(f"The file {file} ").partition(":")[0].rstrip(".")
        raise ConfigError(
            f"{key}={file} {reason}: name a file of `TYPE:subtype question` or `type<TAB>question` lines."
        ) from None


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # TREC's own files are Latin-1, in which every byte is a letter.
        return content.decode("latin-1")


def _parse(line: str, place: str) -> Labelled:
    form = _TABBED if "\t" in line else _COARSE
    found = form.fullmatch(line.rstrip())
    if not found:
        raise ConfigError(
            f"{place} has no type before its question: write `TYPE:subtype question` or `type<TAB>question`."
        )
    return Labelled(TREC.get(found[1], found[1]), found[2])
