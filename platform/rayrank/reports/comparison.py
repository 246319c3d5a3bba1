"""Two runs compared query by query: overall, on groups of queries, and the queries on which they differ most."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rayrank.measure.significance import Values, compare
from rayrank.measure.slices import CLOSE, Slice, Test, by_group, compared
from rayrank.reports.ablation import Procedure

LONGEST = 10
"""Queries with this many words or more are one group."""
TOP = 3
"""Passages of each run that a case shows."""
MOST_TYPES = 12
"""Query types that are shown, the most frequent first; the others are one group."""

CUT_WORDS = ("none", "1", "2 or more")
RANKS = (
    ("1", 1), ("2 to 3", 3), ("4 to 10", 10), ("11 to 30", 30), ("31 to 100", 100), ("above 100", 10**9),
)  # fmt: skip
OUT_OF_REACH, NO_RELEVANT = "out of reach", "no relevant passage"


@dataclass(frozen=True)
class QueryFacts:
    """What queries are grouped by, in the order of the measured queries; a fact that is not known is None."""

    types: Sequence[str] | None
    num_words: NDArray[np.int64] | None
    cut_words: NDArray[np.int64]
    """Words that the tokenizer cuts into several pieces."""
    first_ranks: NDArray[np.int64] | None
    """The first-stage rank of the first relevant passage, 0 if it is out of reach, -1 if the query has none."""


@dataclass(frozen=True)
class Hit:
    """A passage of a top list."""

    passage_id: str
    text: str
    is_relevant: bool


@dataclass(frozen=True)
class Case:
    """A query on which two runs differ: both values and both top lists, and a relevant passage with its ranks."""

    query_id: str
    query: str
    query_type: str
    value: float
    baseline: float
    top: list[Hit]
    baseline_top: list[Hit]
    relevant: Hit | None
    rank: int
    """The relevant passage's rank in the run, 0 if the run does not have it."""
    baseline_rank: int


@dataclass(frozen=True)
class ComparisonReport:
    """All figures of a comparison."""

    run: str
    baseline: str
    first_stage: str
    num_without_results: dict[str, int]
    """For each of the two runs the number of judged queries for which it has no passages."""
    metric: str
    split: str
    procedure: Procedure
    overall: Slice
    tables: dict[str, list[Slice]]
    """Groups of queries by what they are grouped by."""
    differences: list[float]
    """Run minus baseline for every query, largest first."""
    gains: list[Case]
    losses: list[Case]

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON value."""
        return asdict(self)


def test_of(procedure: Procedure) -> Test:
    """Return the paired test that a configuration asks for."""
    return lambda values, baseline: compare(
        values, baseline, procedure.test, procedure.resamples, procedure.seed, procedure.level
    )


def overall(values: Values, baseline: Values, procedure: Procedure) -> Slice:
    """Compare two runs on all queries."""
    return compared("all", values, baseline, test_of(procedure))


def tables(facts: QueryFacts, values: Values, baseline: Values, procedure: Procedure) -> dict[str, list[Slice]]:
    """Compare two runs on groups of queries: by type, length, cut words, and first-stage rank."""
    groups: dict[str, tuple[list[str], Sequence[str]]] = {}
    if facts.types is not None:
        groups["query type"] = _by_type(facts.types)
    if facts.num_words is not None:
        names = [*map(str, range(1, LONGEST)), f"{LONGEST} or more"]
        groups["query length, words"] = ([names[min(count, LONGEST) - 1] for count in facts.num_words], names)
    groups["words cut into pieces"] = ([CUT_WORDS[min(count, 2)] for count in facts.cut_words], CUT_WORDS)
    if facts.first_ranks is not None:
        ranks = [*(name for name, _ in RANKS), OUT_OF_REACH, NO_RELEVANT]
        groups["first-stage rank of the first relevant passage"] = (list(map(rank_group, facts.first_ranks)), ranks)
    test = test_of(procedure)
    return {name: by_group(*grouping, values, baseline, test) for name, grouping in groups.items()}


def rank_group(rank: int) -> str:
    """Return the name of the group of a rank; see `QueryFacts.first_ranks` for 0 and -1."""
    if rank <= 0:
        return NO_RELEVANT if rank else OUT_OF_REACH
    return next(name for name, last in RANKS if rank <= last)


def _by_type(types: Sequence[str]) -> tuple[list[str], list[str]]:
    named = [name or "no type" for name in types]
    frequent = [name for name, _ in Counter(named).most_common(MOST_TYPES)]
    order = list(dict.fromkeys([*frequent, "other types"]))
    return [name if name in frequent else "other types" for name in named], order


def most_different(values: Values, baseline: Values, count: int) -> tuple[list[int], list[int]]:
    """Return the positions of the queries with the largest gains and losses, the largest first."""
    differences = values - baseline
    order = np.argsort(-differences, kind="stable")
    gains = [int(place) for place in order[:count] if differences[place] > CLOSE]
    return gains, [int(place) for place in order[::-1][:count] if differences[place] < -CLOSE]


def case(
    query: Mapping[str, Any], figures: tuple[float, float], lists: tuple[Sequence[str], Sequence[str]],
    relevant: Sequence[str], texts: Mapping[str, str],
) -> Case:  # fmt: skip
    """Describe one query; `lists` are the passage ids of both runs, best first, `relevant` the relevant passages."""

    def hit(passage_id: str) -> Hit:
        return Hit(passage_id, texts.get(passage_id, ""), passage_id in relevant)

    def rank(passages: Sequence[str], passage_id: str) -> int:
        return passages.index(passage_id) + 1 if passage_id in passages else 0

    # The relevant passage that the better run ranks highest.
    better = lists[0] if figures[0] >= figures[1] else lists[1]
    best = min(relevant, key=lambda each: rank(better, each) or len(better) + 1, default=None)
    return Case(
        query["query_id"], query["text"], query["query_type"] or "", *figures,
        [hit(each) for each in lists[0][:TOP]], [hit(each) for each in lists[1][:TOP]],
        None if best is None else hit(best),
        *((0, 0) if best is None else (rank(lists[0], best), rank(lists[1], best))),
    )  # fmt: skip
