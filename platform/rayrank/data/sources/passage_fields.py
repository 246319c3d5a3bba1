"""Numeric fields of a passage, such as its price or its date, from a row of a corpus file or from its metadata."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from rayrank.core.records import PassageFields
from rayrank.data.sources.fields import id_field
from rayrank.data.sources.lines import BadRow

SECONDS_OF_A_DAY = 86_400


def passage_fields(row: dict[str, Any], names: Sequence[str]) -> PassageFields:
    """Return the fields of a row; one that is not in the row itself is looked up in its `metadata`."""
    metadata = row.get("metadata")
    inner = metadata if isinstance(metadata, dict) else {}
    return PassageFields(
        id_field(row, "_id"), tuple(number(name, row[name] if name in row else inner.get(name)) for name in names)
    )


def readable_fields(named: Mapping[str, Any]) -> dict[str, float]:
    """Return the entries that are numbers or dates; those that are neither are left out."""
    found = {}
    for name, value in named.items():
        with suppress(BadRow):
            found[name] = number(name, value)
    return {name: value for name, value in found.items() if value is not None}


def number(name: str, value: Any) -> float | None:
    """Return the value of a field as a number, dates as days since 1970; None if it is missing or empty."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    found = math.nan
    if isinstance(value, int | float):
        found = _finite(value)
    elif isinstance(value, str):
        found = _finite(value)
        if math.isnan(found):
            found = _days(value.strip())
    if math.isnan(found):
        raise BadRow(f"the field {name!r} is {value!r}, which is neither a number nor a date such as 2024-05-31")
    return found


def _finite(value: str | float) -> float:
    """Return a number, NaN if it is none or infinite."""
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return math.nan
    return found if math.isfinite(found) else math.nan


def _days(text: str) -> float:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return math.nan
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return aware.timestamp() / SECONDS_OF_A_DAY
