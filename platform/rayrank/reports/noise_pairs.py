"""Pairs for a person to relabel: the unjudged candidates with the highest probability under the pointwise model."""

import io
from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyarrow import csv

from rayrank.data.pair_set import PairSet, relevant
from rayrank.scores.noise_filter import probabilities

# By logits, because probabilities that round to 1 are equal. Ids break ties, so that the order of the parts does not
# matter.
ORDER = [("score", "descending"), ("rank", "ascending"), ("query_id", "ascending"), ("passage_id", "ascending")]


def suspicious(
    parts: Iterable[pa.Table],
    judgments: pa.Table,
    query_types: pa.Table | None,
    count: int = 1000,
    relevant_from: int = 1,
) -> pa.Table:
    """Return the unjudged pairs of highest probability, each with its query's best-scoring judged positive.

    If none of a query's positives was scored, its first judged one is shown, without a probability.
    """
    listed = relevant(judgments, relevant_from)
    judged, positive = PairSet(judgments), PairSet(listed)
    best, positives = [], []
    for part in parts:
        positives.append(part.filter(pa.array(positive.marks(part))))
        best.append(part.filter(pa.array(~judged.marks(part))))
        # Only the best pairs so far and one more part are in memory at a time.
        best = [pa.concat_tables(best).sort_by(ORDER).slice(0, count)]
    if not best:
        raise ValueError("there are no scored candidates to choose from")
    return _with_positives(best[0], _best_positives(positives, listed), query_types)


def passage_ids(pairs: pa.Table) -> list[str]:
    """Return the ids of the passages whose texts `with_texts` needs."""
    named = [*pairs["passage_id"].to_pylist(), *pairs["positive_id"].to_pylist()]
    return sorted({passage_id for passage_id in named if passage_id is not None})


def with_texts(pairs: pa.Table, queries: Mapping[str, str], passages: Mapping[str, str]) -> pa.Table:
    """Return the pairs with the texts of query, passage and positive, for a person to compare."""
    texts = {
        "query": [queries[query_id] for query_id in pairs["query_id"].to_pylist()],
        "passage": [passages[passage_id] for passage_id in pairs["passage_id"].to_pylist()],
        "positive": [None if name is None else passages[name] for name in pairs["positive_id"].to_pylist()],
    }
    for name, column in texts.items():
        pairs = pairs.append_column(name, pa.array(column, pa.large_string()))
    return pairs


def csv_bytes(table: pa.Table) -> bytes:
    """Return a table as UTF-8 CSV; texts are quoted, which keeps their line ends and quotation marks."""
    stream = io.BytesIO()
    csv.write_csv(table, stream)
    return stream.getvalue()


def _best_positives(scored: list[pa.Table], listed: pa.Table) -> dict[str, tuple[str, float | None]]:
    """Return each query's highest-scoring positive with its probability, or its first listed one if none was scored."""
    best: dict[str, tuple[str, float | None]] = {}
    for query_id, passage_id in zip(listed["query_id"].to_pylist(), listed["passage_id"].to_pylist(), strict=True):
        best.setdefault(query_id, (passage_id, None))
    ordered = pa.concat_tables(scored).sort_by([(name, "ascending") for name in ("score", "query_id", "passage_id")])
    values = probabilities(ordered["score"].to_numpy()).tolist()
    # In ascending order, so that the best positive overwrites the others.
    for query_id, passage_id, value in zip(
        ordered["query_id"].to_pylist(), ordered["passage_id"].to_pylist(), values, strict=True
    ):
        best[query_id] = (passage_id, value)
    return best


def _with_positives(
    pairs: pa.Table, best: dict[str, tuple[str, float | None]], query_types: pa.Table | None
) -> pa.Table:
    query_ids = pairs["query_id"].to_pylist()
    positives = [best.get(query_id, (None, None)) for query_id in query_ids]
    types = {}
    if query_types is not None:
        types = dict(zip(query_types["query_id"].to_pylist(), query_types["query_type"].to_pylist(), strict=True))
    return pa.table(
        {
            "query_id": pairs["query_id"],
            "passage_id": pairs["passage_id"],
            "query_type": pa.array([types.get(query_id, "") for query_id in query_ids], pa.string()),
            "probability": probabilities(pairs["score"].to_numpy()),
            "rank": pairs["rank"],
            "positive_id": pa.array([passage_id for passage_id, _ in positives], pa.string()),
            "positive_probability": pa.array([value for _, value in positives], pa.float64()),
        }
    )
