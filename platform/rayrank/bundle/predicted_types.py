"""The types of queries that come without one, as an exported model was trained to read them."""

from collections.abc import Sequence

from rayrank.bundle.export import Exported
from rayrank.text import query_types


def types_for(exported: Exported, queries: Sequence[str], given: Sequence[str | None]) -> list[str] | None:
    """Return a type for each query, the one given or else a prediction; none for a model trained without them."""
    if not exported.settings.input.query_type:
        return None
    unknown = [query for query, kind in zip(queries, given, strict=True) if not kind]
    predicted = iter(_predicted(exported, unknown) if unknown else [])
    return [kind or next(predicted) for kind in given]


def _predicted(exported: Exported, queries: Sequence[str]) -> list[str]:
    if exported.typer is not None:
        return exported.typer(queries)
    settings = exported.settings
    found = query_types.predict(queries, settings.query_types.abbreviation)
    # A name it was never trained with tells a model nothing; the most frequent one it knows best.
    return [kind if not settings.types or kind in settings.types else settings.types[0] for kind in found]
