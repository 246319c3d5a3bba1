"""Files of questions labelled with types, one per line: `TYPE:subtype question` as in TREC, or `type<TAB>question`."""

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
"""TREC's coarse types, and the words for them in the re-ranker's input; other types are not translated."""

_COARSE = re.compile(r"([^\s:]+):\S* +(\S.*)")
_TABBED = re.compile(r" *([^\t]*[^\t ]) *\t\s*(\S.*)")


class Labelled(NamedTuple):
    """A question and its type."""

    query_type: str
    text: str


def read_labelled(file: str, key: str) -> list[Labelled]:
    """Return a file's questions; `key` is the setting or option that an error message names."""
    lines = enumerate(_decoded(_content(file, key)).split("\n"), 1)
    rows = [_parse(line, f"{key}={file} line {number}") for number, line in lines if line.strip()]
    if not rows:
        raise ConfigError(f"{key}={file} has no questions: name a file with a type and a question on each line.")
    return rows


def labels_digest(file: str, key: str) -> str:
    """Return a digest of a file's uncompressed content."""
    return hashlib.sha256(_content(file, key)).hexdigest()[:16]


def type_names(types: Sequence[str], key: str) -> list[str]:
    """Return the distinct types, sorted; raise ConfigError if there is only one."""
    names = sorted(set(types))
    if len(names) < 2:
        raise ConfigError(f"{key} has questions of the type {names[0]} only: name questions of at least two types.")
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
        # TREC's own files are Latin-1; decoding from it never fails.
        return content.decode("latin-1")


def _parse(line: str, place: str) -> Labelled:
    form = _TABBED if "\t" in line else _COARSE
    found = form.fullmatch(line.rstrip())
    if not found:
        raise ConfigError(
            f"{place} has no type before its question: write `TYPE:subtype question` or `type<TAB>question`."
        )
    return Labelled(TREC.get(found[1], found[1]), found[2])
