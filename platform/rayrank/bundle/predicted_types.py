"""Predicting the types of queries for an exported model whose input has a query type."""

from collections.abc import Sequence

from rayrank.bundle.export import Bundle
from rayrank.text import query_types


def types_for(bundle: Bundle, queries: Sequence[str], given: Sequence[str | None]) -> list[str] | None:
    """Return the given type of each query, or a predicted one; None for a model whose input has no query type."""
    if not bundle.settings.input.query_type:
        return None
    unknown = [query for query, kind in zip(queries, given, strict=True) if not kind]
    predicted = iter(_predict(bundle, unknown) if unknown else [])
    return [kind or next(predicted) for kind in given]


def _predict(bundle: Bundle, queries: Sequence[str]) -> list[str]:
    if bundle.query_typer is not None:
        return bundle.query_typer(queries)
    settings = bundle.settings
    found = query_types.predict(queries, settings.query_types.abbreviation, settings.language)
    # A type that was not seen in training is replaced by the most frequent one that was.
    return [kind if not settings.types or kind in settings.types else settings.types[0] for kind in found]
