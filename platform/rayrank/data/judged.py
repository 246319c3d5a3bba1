"""Queries and judgments, checked against each other before any passage is read."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import SPLIT_PRIORITY, UNJUDGED, Judgment, Malformed, Query
from rayrank.data.holdout import hold_out, keep_some, words_of
from rayrank.data.problems import Problems
from rayrank.data.sources.source import Source

Row = TypeVar("Row", Query, Judgment)


class Judged(NamedTuple):
    """The queries, each in one split, and the judgments of known queries."""

    queries: list[Query]
    judgments: list[Judgment]
    num_same_text: int
    """Queries of other splits that have the same text as a training query; they are kept, and the user is told."""
    num_held_out: int = 0
    """Training queries that became dev queries, because the dataset has no dev split."""


def read_judged(source: Source, dataset: DatasetConfig, problems: Problems, types: Mapping[str, str]) -> Judged:
    """Read and check a source's queries and judgments; a dataset without dev gets a share of train.

    `types` maps query ids to types, which replace those of the source.
    """
    judgments = list(_readable(source.judgments(), problems))
    queries = list(_readable(source.queries(), problems))
    if not queries:
        raise DatasetError(f"The dataset {dataset.source} has no queries: check its query files.")
    if not judgments:
        raise DatasetError(f"The dataset {dataset.source} has no judgments: check its qrels files.")
    splits = _splits(queries, judgments, problems)
    texts = _texts(queries, splits, problems)
    kept = [
        query._replace(split=splits.get(query_id, UNJUDGED), query_type=types.get(query_id, query.query_type))
        for query_id, query in texts.items()
    ]
    named = {query.query_id for query in queries}
    judged = _known(judgments, splits, texts, named, problems)
    problems.add("unknown_typed_queries", [f"query {query_id}" for query_id in types if query_id not in named])
    problems.stop_if_decided()
    if dataset.train_queries is not None:
        kept, judged = keep_some(kept, judged, dataset.train_queries, dataset.train_seed)
    held_out = hold_out(kept, judged, dataset.holdout)
    return Judged(held_out.queries, held_out.judgments, _same_text(held_out.queries), held_out.num_queries)


def _readable(rows: Iterator[Row | Malformed], problems: Problems) -> Iterator[Row]:
    for row in rows:
        if isinstance(row, Malformed):
            problems.add_malformed(row)
        else:
            yield row


def _splits(queries: list[Query], judgments: list[Judgment], problems: Problems) -> dict[str, str]:
    """Return one split for each query: its own if it names one, otherwise that of its judgments."""
    claims: dict[str, set[str]] = defaultdict(set)
    pairs = [(query.query_id, query.split) for query in queries]
    pairs += [(judgment.query_id, judgment.split) for judgment in judgments]
    for query_id, split in pairs:
        if split:
            claims[query_id].add(split)
    order = {split: place for place, split in enumerate(SPLIT_PRIORITY)}
    shared = sorted(query_id for query_id, names in claims.items() if len(names) > 1)
    problems.add("shared_queries", [f"{query_id} in {' and '.join(sorted(claims[query_id]))}" for query_id in shared])
    return {
        query_id: min(names, key=lambda split: (order.get(split, len(order)), split))
        for query_id, names in claims.items()
    }


def _texts(queries: list[Query], splits: dict[str, str], problems: Problems) -> dict[str, Query]:
    """Return one query for each id: the first one with text, preferably from the split assigned to the id."""
    texts: dict[str, Query] = {}
    places: set[tuple[str, str]] = set()
    for query in queries:
        if (query.query_id, query.split) in places:
            problems.add("duplicate_queries", [query.query_id])
        elif not query.text.strip():
            problems.add("empty_queries", [query.query_id])
        else:
            first = texts.setdefault(query.query_id, query)
            # Each split may number its queries from 1: the text must come from the same split as the judgments.
            if query.split != first.split and query.split == splits[query.query_id]:
                texts[query.query_id] = query
            places.add((query.query_id, query.split))
    return texts


def _known(
    judgments: list[Judgment], splits: dict[str, str], texts: dict[str, Query], named: set[str], problems: Problems
) -> list[Judgment]:
    """Return the judgments of known queries in their query's split, each pair once."""
    kept: list[Judgment] = []
    pairs: set[tuple[str, str]] = set()
    for judgment in judgments:
        query_id, pair = judgment.query_id, (judgment.query_id, judgment.passage_id)
        if query_id not in named:
            problems.add("unknown_queries", [f"query {query_id}, passage {judgment.passage_id}"])
        elif query_id not in texts or judgment.split != splits[query_id]:
            continue  # its query was left out, or stays in another split
        elif pair in pairs:
            problems.add("duplicate_judgments", [f"query {query_id}, passage {judgment.passage_id}"])
        else:
            pairs.add(pair)
            kept.append(judgment)
    return kept


def _same_text(queries: list[Query]) -> int:
    training = {words_of(query.text) for query in queries if query.split == "train"}
    return sum(query.split not in ("train", UNJUDGED) and words_of(query.text) in training for query in queries)
