"""Queries that are replayed to compare two models: from a JSONL file, or from the dev sample of an export."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rayrank.bundle.dev_sample import JudgedQuery
from rayrank.bundle.golden import GoldenPair
from rayrank.core.errors import DatasetError
from rayrank.data.sources.passage_fields import readable_fields
from rayrank.serve.records import MAX_FIELDS


@dataclass(frozen=True)
class Replay:
    """A query and its candidates from an earlier request, with judgments if there are any."""

    query: str
    passages: Sequence[str]
    query_type: str | None = None
    relevance: Sequence[int] | None = None
    first_stage_scores: Sequence[float] | None = None
    fields: Sequence[Mapping[str, float]] | None = None
    """For each passage the values of named features, which a fusion reads."""


def golden_replays(pairs: Sequence[GoldenPair]) -> list[Replay]:
    """Return the golden pairs grouped by query."""
    queries: dict[tuple[str, str | None], list[str]] = {}
    for pair in pairs:
        queries.setdefault((pair.query, pair.query_type), []).append(pair.passage)
    return [Replay(query, passages, kind) for (query, kind), passages in queries.items()]


def dev_replays(sample: Sequence[JudgedQuery]) -> list[Replay]:
    """Return the judged dev queries of an export."""
    return [
        Replay(
            each.query, tuple(document.text for document in each.documents), each.query_type, each.relevance,
            each.first_stage_scores, _if_any([document.fields for document in each.documents]),
        )
        for each in sample
    ]  # fmt: skip


def read_replays(file: str, judgments: str | None) -> list[Replay]:
    """Return the queries of a JSONL file, with judgments from its lines or from a TREC qrels file."""
    judged = dict(_judgments(judgments)) if judgments else None
    replays = []
    for number, line in _lines(file, "--queries"):
        try:
            replays.append(_replay(json.loads(line), judged))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DatasetError(
                f'--queries {file}, line {number} cannot be read: {reason}; write {{"query": ..., "documents": [...]}}.'
            ) from None
    if not replays:
        raise DatasetError(f"--queries {file} has no queries: write one per line.")
    return replays


def _replay(entry: dict[str, Any], judged: dict[tuple[str, str], int] | None) -> Replay:
    documents, relevance = _documents(entry["documents"]), entry.get("relevance")
    if judged is not None:
        query_id = str(entry["query_id"])
        relevance = [judged.get((query_id, str(document["id"])), 0) for document in documents]
    first = entry.get("first_stage_scores")
    for name, values in (("relevance", relevance), ("first_stage_scores", first)):
        if values is not None and len(values) != len(documents):
            raise ValueError(f"{name} has {len(values)} values for {len(documents)} documents")
    fields = [_fields(place, document.get("fields")) for place, document in enumerate(documents)]
    return Replay(
        str(entry["query"]), [str(document["text"]) for document in documents], entry.get("query_type"),
        relevance and [int(each) for each in relevance], first and [float(each) for each in first],
        _if_any(fields),
    )  # fmt: skip


def _if_any(fields: list[dict[str, float]]) -> list[dict[str, float]] | None:
    return fields if any(fields) else None


def _documents(given: Any) -> list[dict[str, Any]]:
    """Return the documents as objects; one that is only a text becomes an object with it."""
    if not isinstance(given, list):
        raise ValueError("documents is no list")
    if not given:
        raise ValueError("documents is empty")
    for place, document in enumerate(given):
        if not isinstance(document, str | dict):
            raise ValueError(f"documents.{place} is {json.dumps(document)}, neither a text nor an object with a `text`")
    return [{"text": document} if isinstance(document, str) else document for document in given]


def _fields(place: int, named: Any) -> dict[str, float]:
    """Return the fields of a document as the endpoint reads them."""
    if not isinstance(named, dict | None):
        raise ValueError(f'documents.{place}.fields is {json.dumps(named)}, no object such as {{"price": 3}}')
    if named and len(named) > MAX_FIELDS:
        raise ValueError(f"documents.{place}.fields has {len(named)} entries, more than {MAX_FIELDS}")
    return readable_fields(named or {})


def _judgments(file: str) -> Iterator[tuple[tuple[str, str], int]]:
    for number, line in _lines(file, "--judgments"):
        try:
            query_id, _, passage_id, relevance = line.split()
            yield (query_id, passage_id), int(relevance)
        except ValueError:
            raise DatasetError(
                f"--judgments {file}, line {number} cannot be read: write `query_id 0 passage_id relevance`."
            ) from None


def _lines(file: str, option: str) -> Iterator[tuple[int, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DatasetError(f"{option} {file} cannot be read: {reason}; name another file.") from None
    # splitlines() would also split at U+2028, which JSON may have within a text.
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip())
