"""The text of a passage, filled in from the fields of a row by a template such as `{title} | {section}: {text}`."""

from collections.abc import Iterable, Mapping
from string import Formatter
from typing import Any

from rayrank.core.errors import ConfigError, DatasetError
from rayrank.data.sources.fields import text_field
from rayrank.data.sources.lines import BadRow

Line = list[tuple[str, str]]
"""Pieces of a line: a literal text and the field that follows it, which is empty at the end of a line."""


class PassageTemplate:
    """A template of one or more lines, with names of fields in braces; `a.b` is the field b of the object a."""

    def __init__(self, template: str) -> None:
        self.shown = template.replace("\n", "\\n")
        self._lines = [self._parsed(line) for line in template.split("\n")]
        self.fields = list(dict.fromkeys(field for line in self._lines for _, field in line if field))
        if not self.fields:
            raise self._unusable("it names no field")

    def __call__(self, row: dict[str, Any]) -> str:
        """Return the text of a row; a field that is missing or null is empty.

        A line whose fields are all empty is left out. The white space that an empty field leaves at the beginning or
        the end of its line is removed.
        """
        found = {field: value for field in self.fields if (value := _value(row, field)) is not None}
        if not found:
            one, names = len(self.fields) == 1, " and ".join(map(repr, self.fields))
            raise BadRow(f"the field {names} is missing" if one else f"the fields {names} are missing")
        texts = dict.fromkeys(self.fields, "") | {field: text_field(found, field) for field in found}
        if not any(text.strip() for text in texts.values()):
            return ""
        kept = [text for line in self._lines if (text := _filled(line, texts)) is not None]
        text = "\n".join(kept)
        return text if len(kept) == len(self._lines) else text.strip("\n")

    def check(self, rows: Iterable[Any], file: str) -> None:
        """Raise an error if a field is in no row of a corpus; reading ends when each field was seen once."""
        missing, known = self.fields, list[str]()
        for row in rows:
            if isinstance(row, dict):
                known = known or list(row)
                missing = [field for field in missing if _value(row, field) is None]
            if not missing:
                return
        # A corpus without any row is reported by the corpus stage.
        if known:
            raise DatasetError(
                f"dataset.passage_template={self.shown} names {missing[0]}, which is a field of no row of {file}: name "
                f"fields such as {', '.join(known)}."
            )

    def _parsed(self, line: str) -> Line:
        pieces: Line = []
        try:
            for literal, field, form, conversion in Formatter().parse(line):
                if form or conversion or (field is not None and not field.strip()):
                    raise self._unusable("between braces there must be the name of a field and nothing else")
                pieces.append((literal, (field or "").strip()))
        except ValueError:
            raise self._unusable("a brace has no partner") from None
        return pieces

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(
            f"dataset.passage_template={self.shown} cannot be used: {reason}; write the fields of a passage in braces, "
            f"as in {{title}} | {{text}}, and a brace itself as {{{{ or }}}}."
        )


def _value(row: dict[str, Any], field: str) -> Any:
    """Return the value of a field, or None if it is missing or null."""
    if (value := row.get(field)) is not None:
        return value
    outer, _, inner = field.partition(".")
    nested = row.get(outer) if inner else None
    return _value(nested, inner) if isinstance(nested, dict) else None


def _filled(line: Line, texts: Mapping[str, str]) -> str | None:
    """Return a line with its fields filled in, or None if it has fields and all of them are empty."""
    fields = [field for _, field in line if field]
    num_empty = sum(not texts[field].strip() for field in fields)
    if fields and num_empty == len(fields):
        return None
    text = "".join(f"{literal}{texts[field] if field else ''}" for literal, field in line)
    return text.strip() if num_empty else text
