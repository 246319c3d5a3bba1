"""Cut words: passages that share a word piece with a query's word but lack the word, ranked with and without STRM.

DR-BERT's Table 3 and Figure 4 show such cases; the counts here also tell whether the cases are typical.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rayrank.measure.significance import Values
from rayrank.measure.slices import Slice, by_group, compared
from rayrank.reports.ablation import Procedure
from rayrank.reports.comparison import test_of

WITH, WITHOUT = "with STRM", "without STRM"
MOST_COLUMNS = 40
"""Pieces of a passage that a picture of attention shows; of longer passages it shows those around the shared pieces."""

Mask = NDArray[np.bool_]
Ranks = NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """The candidates that are not judged relevant to queries with cut words: one array entry for each pair."""

    queries: Ranks
    """The number of each pair's query."""
    passages: Ranks
    """The number of each pair's passage."""
    share: Mask
    """Whether the passage shares a piece of a cut word that it does not have."""
    ranks: Ranks
    """The passage's rank with STRM among all candidates of its query."""
    plain_ranks: Ranks
    """The same without STRM."""


@dataclass(frozen=True)
class RankGroup:
    """Pairs of one kind: their mean ranks with and without STRM, and how many STRM ranks lower, equally and higher."""

    name: str
    num_queries: int
    num_pairs: int
    mean_rank: float | None
    plain_mean_rank: float | None
    num_lower: int
    num_equal: int
    num_higher: int


@dataclass(frozen=True)
class SharedWord:
    """A cut word of the query as its pieces, and the words of the passage that share pieces with it."""

    word: str
    pieces: list[str]
    others: list[list[str]]


@dataclass(frozen=True)
class Case:
    """A misleading passage: a row of the paper's Table 3."""

    query_id: str
    query: str
    passage_id: str
    passage: str
    is_judged: bool
    words: list[SharedWord]
    rank: int
    plain_rank: int
    probability: float
    plain_probability: float


@dataclass(frozen=True)
class Attention:
    """How much each piece of a query attends to each piece of a passage, with and without STRM."""

    query_pieces: list[str]
    passage_pieces: list[str]
    marked_query: list[int]
    """The pieces of the cut words, by their places in `query_pieces`."""
    marked_passage: list[int]
    """The pieces that are shared, by their places in `passage_pieces`."""
    weights: list[list[float]]
    plain_weights: list[list[float]]
    starts: int
    """The number of the first passage piece that is shown."""
    num_pieces: int
    """Pieces of the whole passage that the model reads."""


@dataclass(frozen=True)
class CutWordsReport:
    """All figures of the report."""

    run: str
    form: str
    """The form of STRM that is compared with plain attention."""
    split: str
    metric: str
    top: int
    """A passage up to this rank is ranked high."""
    probabilities: str
    """How scores became probabilities."""
    layers: str
    """The layers whose attention is shown: the last, or the mean of all."""
    procedure: Procedure
    num_candidates: int
    queries: list[Slice]
    """Both models on all queries, and on those with and without cut words."""
    groups: list[RankGroup]
    lowered: list[Case]
    """Passages that the model without STRM ranks high and STRM ranks lower, the clearest first."""
    raised: list[Case]
    """The other way: passages that the model with STRM ranks high and the one without STRM ranks lower."""
    attention: list[Attention]
    """One for each of the first cases: those of `lowered`, then those of `raised`."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON value."""
        return asdict(self)


def query_slices(values: Values, plain: Values, has_cut_word: Mask, procedure: Procedure) -> list[Slice]:
    """Compare both models on all queries, and on those with and without cut words."""
    names = ["with cut words", "without cut words"]
    groups = [names[0] if cut else names[1] for cut in has_cut_word]
    test = test_of(procedure)
    return [compared("all", values, plain, test), *by_group(groups, names, values, plain, test)]


def rank_groups(pairs: Pairs, top: int) -> list[RankGroup]:
    """Return the mean ranks of passages that share pieces and of the others, for comparison.

    A passage that one model ranks high is ranked lower by almost any other model, so that both models' top and the
    passages that share nothing are needed to see what STRM does.
    """
    high, plain_high = pairs.ranks <= top, pairs.plain_ranks <= top
    every = np.ones(len(pairs.share), np.bool_)
    return [
        _group(f"{kind}, {where}", pairs, of_kind & placed)
        for kind, of_kind in (("share pieces", pairs.share), ("share none", ~pairs.share))
        for where, placed in (
            ("all", every),
            (f"top {top} {WITHOUT}", plain_high),
            (f"top {top} {WITH}", high),
        )
    ]


def _group(name: str, pairs: Pairs, chosen: Mask) -> RankGroup:
    ranks, plain = pairs.ranks[chosen], pairs.plain_ranks[chosen]
    means = (float(ranks.mean()), float(plain.mean())) if len(ranks) else (None, None)
    counts = (int(np.count_nonzero(each)) for each in (ranks > plain, ranks == plain, ranks < plain))
    return RankGroup(name, len(np.unique(pairs.queries[chosen])), len(ranks), *means, *counts)


def clearest(pairs: Pairs, top: int, count: int) -> tuple[list[int], list[int]]:
    """Return the pairs that STRM ranks most times lower than plain attention, and most times higher.

    The passages share pieces, and the model that ranks them higher ranks them within the top. No two pairs of a list
    have the same query or the same passage, because datasets repeat questions in slightly different words.
    """
    lower = pairs.ranks / pairs.plain_ranks
    found = []
    for times, is_high in ((lower, pairs.plain_ranks <= top), (1 / lower, pairs.ranks <= top)):
        chosen = np.flatnonzero(pairs.share & is_high & (times > 1))
        order = chosen[np.argsort(-times[chosen], kind="stable")]
        found.append(_one_of_each(order.tolist(), pairs)[:count])
    return found[0], found[1]


def _one_of_each(order: Iterable[int], pairs: Pairs) -> list[int]:
    """Return pairs in this order, without those whose query or passage came before."""
    found, queries, passages = [], set(), set()
    for pair in order:
        query, passage = int(pairs.queries[pair]), int(pairs.passages[pair])
        if query not in queries and passage not in passages:
            found.append(pair)
            queries.add(query)
            passages.add(passage)
    return found


def shown_columns(num_pieces: int, shared: Sequence[int]) -> range:
    """Return the passage pieces that a picture shows: all, or MOST_COLUMNS around as many shared pieces as fit."""
    if num_pieces <= MOST_COLUMNS or not shared:
        return range(min(num_pieces, MOST_COLUMNS))
    places = np.array(sorted(shared))
    inside = np.searchsorted(places, places + MOST_COLUMNS) - np.arange(len(places))
    first = int(inside.argmax())
    last = places[first + inside[first] - 1]
    start = int(places[first] + last + 1 - MOST_COLUMNS) // 2
    start = min(max(0, start), num_pieces - MOST_COLUMNS)
    return range(start, start + MOST_COLUMNS)
