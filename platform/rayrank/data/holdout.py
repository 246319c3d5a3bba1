"""Parts of the training queries, chosen by a hash: those that are kept, and a dev split for datasets without one."""

import hashlib
import re
from collections import defaultdict
from typing import NamedTuple

from rayrank.core.records import UNJUDGED, Judgment, Query

MOST = 1000
"""At most so many queries are held out: more would make the choice of a model hardly more certain."""


class HeldOut(NamedTuple):
    """Queries and judgments in their new splits."""

    queries: list[Query]
    judgments: list[Judgment]
    num_queries: int
    """Training queries that became dev queries."""


def hold_out(queries: list[Query], judgments: list[Judgment], share: float) -> HeldOut:
    """Move a share of the judged training queries to dev, unless there are judged dev queries.

    Queries of one group, or with the same words, stay together: a dev query that a training query repeats would
    measure memory.
    """
    judged = {split: {row.query_id for row in judgments if row.split == split} for split in ("train", "dev")}
    wanted = min(MOST, max(1, round(share * len(judged["train"]))))
    if judged["dev"] or not share:
        return HeldOut(queries, judgments, 0)
    groups: dict[str, list[str]] = defaultdict(list)
    for query in queries:
        if query.query_id in judged["train"]:
            groups[query.group or words_of(query.text)].append(query.query_id)
    moved = _chosen([groups[name] for name in sorted(groups, key=_hash)], wanted, len(judged["train"]))
    return HeldOut(
        [query._replace(split="dev") if query.query_id in moved else query for query in queries],
        [row._replace(split="dev") if row.query_id in moved else row for row in judgments],
        len(moved),
    )


def _chosen(groups: list[list[str]], wanted: int, num_judged: int) -> set[str]:
    """Return the queries of the first groups that make up about as many as wanted; one group always stays in train."""
    moved: set[str] = set()
    # Up to a tenth more than wanted, because small groups rarely add up exactly. A large group, which could take most
    # of the training data, stays in train.
    most = min(wanted + wanted // 10, num_judged - 1)
    for group in groups:
        if len(moved) < wanted and len(moved) + len(group) <= most:
            moved.update(group)
    smallest = min(groups, key=len, default=[])
    return moved or (set(smallest) if len(smallest) < num_judged else set())


def keep_some(
    queries: list[Query], judgments: list[Judgment], wanted: int, seed: int
) -> tuple[list[Query], list[Judgment]]:
    """Keep the judgments of that many training queries; the other judged training queries become unjudged.

    A larger number keeps the same queries and more.
    """
    judged = {row.query_id for row in judgments if row.split == "train"}
    left_out = set(sorted(judged, key=lambda query_id: _hash(f"{seed} {query_id}"))[wanted:])
    return (
        [query._replace(split=UNJUDGED) if query.query_id in left_out else query for query in queries],
        [row for row in judgments if row.query_id not in left_out],
    )


def words_of(text: str) -> str:
    """Return the words of a text in lower case, without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def _hash(name: str) -> str:
    """Return the place of a group or query in the order in which they are chosen; more of them do not change it."""
    return hashlib.sha256(name.encode()).hexdigest()
