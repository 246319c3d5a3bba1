"""Parsers for the fields of a row; a field that cannot be used raises a BadRow that says why."""

import hashlib
import json
from typing import Any

from rayrank.core.records import Judgment, Passage
from rayrank.data.sources.lines import BadRow


def json_object(line: str) -> dict[str, Any]:
    """Parse one line of JSON that must be an object."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise BadRow(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not usable JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRow(f"a JSON {type(value).__name__}, not an object")
    return value


def text_field(row: dict[str, Any], name: str, default: str | None = None) -> str:
    """Return a field that must be text; a whole number is converted, because ids are often written as numbers."""
    value = row.get(name, default)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise BadRow(f"the field {name!r} is missing" if value is None else f"the field {name!r} is not text")
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON can escape half of a surrogate pair, which cannot be encoded as UTF-8.
        raise BadRow(f"the field {name!r} is not whole Unicode text") from None
    return value


def id_field(row: dict[str, Any], name: str) -> str:
    """Return a field that must be an id."""
    return usable_id(text_field(row, name), f"field {name!r}")


def usable_id(text: str, what: str) -> str:
    """Return an id if it can be written to a run file: not empty, without white space."""
    if not text.strip():
        raise BadRow(f"the {what} is empty")
    if text.split() != [text]:
        raise BadRow(f"the {what} is {text!r}: a run file cannot hold an id with white space")
    return text


def tab_fields(line: str, *names: str) -> list[str]:
    """Return a row's tab-separated fields, one for each name; the first must be an id."""
    fields = line.split("\t")
    if len(fields) != len(names):
        raise BadRow(f"{len(fields)} tab-separated fields, not {', '.join(names)}")
    usable_id(fields[0], names[0])
    return fields


def relevance(text: str) -> int:
    """Parse a relevance grade."""
    try:
        grade = int(text)
    except ValueError:
        raise BadRow(f"the relevance {text!r} is not a whole number") from None
    if abs(grade) >= 1 << 31:
        raise BadRow(f"the relevance {text!r} is too large")
    return grade


def trec_judgment(line: str, split: str) -> Judgment | None:
    """Parse a TREC qrels row: query-id, iteration, passage-id, relevance between tabs or spaces."""
    fields = line.split()
    if not fields:
        return None
    if len(fields) != 4:
        raise BadRow(f"{len(fields)} fields, not query-id, iteration, passage-id, relevance")
    return Judgment(fields[0], fields[2], relevance(fields[3]), split)


def passage_of_text(text: str) -> Passage:
    """Return a passage that has no id of its own: its id is a digest of its text, so that equal passages are one."""
    return Passage(hashlib.sha256(text.encode()).hexdigest()[:16], text)
