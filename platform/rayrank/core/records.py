"""The vocabulary of the project: what a query, a passage, a judgment and a candidate are."""

from typing import NamedTuple

import pyarrow as pa

UNJUDGED = "unjudged"
"""The split name given to queries without one: the source names no split, and no judgment implies one."""

DEV = "dev"
"""The split on which weights and thresholds are tuned, and the run to serve is chosen."""

# A query in several splits is kept in the first of these: test queries are the hardest to replace.
SPLIT_PRIORITY = ("test", "dev", "train")


class Passage(NamedTuple):
    """One retrievable text."""

    passage_id: str
    text: str


class PassageFields(NamedTuple):
    """The numeric fields of one passage, None where it has no value."""

    passage_id: str
    values: tuple[float | None, ...]


class Query(NamedTuple):
    """One query.

    If `split` is empty, the query gets the split of its judgments; an empty `query_type` means that it has no label.
    Queries of the same `group`, such as paraphrases, are never divided between train and a held-out dev split.
    """

    query_id: str
    text: str
    split: str = ""
    query_type: str = ""
    group: str = ""


class Judgment(NamedTuple):
    """How relevant a passage is to a query, as judged by a person (or by the demo's generator)."""

    query_id: str
    passage_id: str
    relevance: int
    split: str


class Candidate(NamedTuple):
    """One passage that a first stage returned for a query; rank starts at 1."""

    query_id: str
    passage_id: str
    rank: int
    score: float


class Malformed(NamedTuple):
    """A place in a source that could not be read, and why."""

    file: str
    line: int
    reason: str


_TEXT = [("text", pa.large_string()), ("piece_ids", pa.large_list(pa.int32()))]

PASSAGES = pa.schema([("passage_id", pa.string()), *_TEXT])
QUERIES = pa.schema([("query_id", pa.string()), ("split", pa.string()), ("query_type", pa.string()), *_TEXT])
JUDGMENTS = pa.schema(
    [
        ("query_id", pa.string()),
        ("passage_id", pa.string()),
        ("relevance", pa.int32()),
        ("split", pa.string()),
    ]
)
CANDIDATES = pa.schema(
    [
        ("query_id", pa.string()),
        ("passage_id", pa.string()),
        ("rank", pa.int32()),
        ("score", pa.float32()),
    ]
)
