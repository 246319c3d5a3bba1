"""Predicting the types of queries for an exported model whose input has a query type."""

from collections.abc import Sequence

from rayrank.bundle.export import Bundle
from rayrank.text import query_types

LONGEST = 50
"""Characters of a given type that are read to recognise it, and quoted if it is unknown."""


def types_for(bundle: Bundle, queries: Sequence[str], given: Sequence[str | None]) -> list[str] | None:
    """Return the given type of each query, or a predicted one; None for a model whose input has no query type."""
    if not bundle.settings.input.query_type:
        return None
    unknown = [query for query, kind in zip(queries, given, strict=True) if not kind]
    predicted = iter(_predict(bundle, unknown) if unknown else [])
    return [kind or next(predicted) for kind in given]


def unknown_type(bundle: Bundle, given: str | None) -> str:
    """Return a warning about a type that the model has not seen in training; empty if it has, or if that is unknown."""
    known = bundle.settings.types if bundle.settings.input.query_type else ()
    if not given or not known or given in known:
        return ""
    # The tokenizer decides which spellings are the same to the model: "Location" is "location" if it ignores case.
    pieces = {tuple(bundle.tokenizer(kind, add_special_tokens=False).input_ids) for kind in known}
    if tuple(bundle.tokenizer(given[:LONGEST], add_special_tokens=False).input_ids) in pieces:
        return ""
    return (
        f"query_type: the model was not trained with {given[:LONGEST]!r}, so its scores may be wrong; send "
        f"{', '.join(known)}, or leave it out."
    )


def _predict(bundle: Bundle, queries: Sequence[str]) -> list[str]:
    if bundle.query_typer is not None:
        return bundle.query_typer(queries)
    settings = bundle.settings
    found = query_types.predict(queries, settings.query_types.abbreviation, settings.language)
    # A type that was not seen in training is replaced by the most frequent one that was.
    return [kind if not settings.types or kind in settings.types else settings.types[0] for kind in found]
