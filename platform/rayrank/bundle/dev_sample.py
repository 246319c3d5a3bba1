"""Judged dev queries with their candidates as text, on which a promotion compares a new model with the live one."""

from typing import Any

from pydantic import Field, TypeAdapter, model_validator

from rayrank.core.config import Section


class JudgedDocument(Section):
    """The text of a candidate, and the features that the model's score is fused with."""

    text: str
    fields: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _of_text(cls, given: Any) -> Any:
        # Earlier versions wrote documents as texts.
        return {"text": given} if isinstance(given, str) else given


class JudgedQuery(Section):
    """A dev query, some of its candidates in the first stage's order, and their grades: a line of `rayrank promote`'s
    --queries."""

    query: str
    query_type: str | None = None
    """None if the model's input has no query type."""
    documents: tuple[JudgedDocument, ...]
    relevance: tuple[int, ...]
    first_stage_scores: tuple[float, ...]


_LINE = TypeAdapter(JudgedQuery)


def to_lines(sample: tuple[JudgedQuery, ...]) -> bytes:
    """Return the sample as JSON lines."""
    return b"".join(_LINE.dump_json(each, exclude_defaults=True) + b"\n" for each in sample)


def from_lines(content: bytes) -> tuple[JudgedQuery, ...]:
    """Return the sample of JSON lines."""
    return tuple(_LINE.validate_json(line) for line in content.splitlines())
