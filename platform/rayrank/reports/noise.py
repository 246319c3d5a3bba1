"""Noise reduction in figures: how many candidates the filter removes at each threshold, and what that costs.

A negative here is a candidate that is not judged relevant: the lists draw their negatives from these. The filter
removes the unjudged ones that the pointwise model finds relevant, and keeps those that were judged irrelevant. Where
the true answers are known, most of the removed candidates should be answers that nobody labelled. A rule is a threshold
of the probability, or a margin below the score of the query's best positive; every rule is counted by itself.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rayrank.core.errors import DatasetError
from rayrank.data.pair_set import Mask, PairSet, relevant_pairs
from rayrank.data.rows import by_query
from rayrank.scores.noise_filter import Scores, near_positives, probabilities, removed

GRID = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.99, 0.995, 0.999)
MARGINS = (-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0)
BINS = 40
NO_TYPE = "(none)"


def report(
    parts: Iterable[pa.Table],
    judgments: pa.Table,
    query_types: pa.Table | None,
    threshold: float,
    hidden: pa.Table | None = None,
    relevant_from: int = 1,
    margin: float | None = None,
    relabel: float | None = None,
) -> dict[str, Any]:
    """Return everything that helps to choose a threshold, a margin and a threshold of relabelling, ready for JSON.

    All rows of a query are in one part; judgments and hidden truth are those of the scored split only.
    """
    relevant, judged = relevant_pairs(judgments, relevant_from), PairSet(judgments)
    truth = None if hidden is None else relevant_pairs(hidden, relevant_from)
    types = _type_names(query_types)
    thresholds = [_Rule("threshold", value) for value in sorted({*GRID, threshold, *([relabel] if relabel else [])})]
    margins = [_Rule("margin", value) for value in sorted({*MARGINS, *([] if margin is None else [margin])})]
    tally = _Tally([*thresholds, *margins], knows_truth=truth is not None)
    for part in parts:
        tally.add(_read(part, relevant, judged, truth, types))
    points = {rule: tally.point(index) for index, rule in enumerate(tally.rules)}
    return {
        "threshold": threshold,
        "margin": margin,
        "relabel": relabel,
        **_counts(tally, len(relevant)),
        "hidden": None if truth is None else _hidden_facts(tally.totals, len(truth)),
        "at_threshold": points[_Rule("threshold", threshold)],
        "at_margin": None if margin is None else points[_Rule("margin", margin)],
        "at_relabel": None if relabel is None else points[_Rule("threshold", relabel)],
        "grid": [points[rule] for rule in thresholds],
        "margins": [points[rule] for rule in margins],
    }


def _counts(tally: "_Tally", num_relevant: int) -> dict[str, Any]:
    """Return what does not depend on a rule: how many candidates there are, and the histogram of their scores."""
    totals = tally.totals
    return {
        "num_queries": len(tally.query_ids),
        "num_candidates": totals["candidates"],
        "num_negatives": totals["negatives"],
        "num_judged_irrelevant": totals["judged_irrelevant"],
        "num_positives": totals["positives"],
        "num_positives_not_candidates": num_relevant - totals["positives"],
        "types": {name: {"num_negatives": count} for name, count in sorted(tally.negatives_by_type.items())},
        "histogram": {
            "edges": [edge / BINS for edge in range(BINS + 1)],
            **{name: counts.tolist() for name, counts in tally.histograms.items()},
        },
    }


def _hidden_facts(totals: Counter[str], known: int) -> dict[str, Any]:
    return {
        "num_hidden": totals["hidden"],
        "num_hidden_not_candidates": known - totals["hidden"],
        "base_rate": _share(totals["hidden"], totals["negatives"]),
    }


@dataclass(frozen=True)
class _Rows:
    """The columns of one part of the scored candidates; `of_query` is each row's index in `query_ids`."""

    query_ids: list[str]
    types: list[str] | None
    of_query: NDArray[np.int64]
    scores: Scores
    ranks: NDArray[np.int32]
    relevant: Mask
    judged: Mask
    hidden: Mask | None
    best: Scores
    """For each row the score of its query's best positive, infinite if none was scored."""


class _Rule(NamedTuple):
    """A way to find answers that nobody labelled: `threshold` or `margin`, and its value."""

    name: str
    value: float

    def marks(self, rows: _Rows, kept: Mask) -> Mask:
        """Return which rows the rule finds, besides those that are kept in any case."""
        if self.name == "margin":
            return near_positives(rows.scores, rows.best, kept, self.value)
        return removed(rows.scores, kept, self.value)


def _read(
    part: pa.Table, relevant: PairSet, judged: PairSet, truth: PairSet | None, types: dict[str, str] | None
) -> _Rows:
    scores = part["score"].to_numpy()
    if np.isnan(scores).any():
        raise DatasetError("A noise score is not a number: train the pointwise model again.")
    query_ids, of_query = by_query(part)
    names = None if types is None else [types.get(query_id) or NO_TYPE for query_id in query_ids]
    positive = relevant.marks(part)
    hidden = None if truth is None else truth.marks(part) & ~positive
    best = np.full(len(query_ids), -np.inf, np.float32)
    np.maximum.at(best, of_query[positive], scores[positive])
    best[best == -np.inf] = np.inf
    ranks, known = part["rank"].to_numpy(), judged.marks(part)
    return _Rows(query_ids, names, of_query, scores, ranks, positive, known, hidden, best[of_query])


def _type_names(query_types: pa.Table | None) -> dict[str, str] | None:
    if query_types is None:
        return None
    return dict(zip(query_types["query_id"].to_pylist(), query_types["query_type"].to_pylist(), strict=True))


@dataclass
class _Tally:
    """Counts summed over parts, in total and by every rule."""

    rules: Sequence[_Rule]
    knows_truth: bool
    query_ids: set[str] = field(default_factory=set)
    totals: Counter[str] = field(default_factory=Counter)
    negatives_by_type: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        groups = ["positives", "negatives", *(["hidden"] if self.knows_truth else [])]
        self.histograms = {name: np.zeros(BINS, np.int64) for name in groups}
        self._points: list[Counter[str]] = [Counter() for _ in self.rules]
        self._by_type: list[Counter[str]] = [Counter() for _ in self.rules]

    def add(self, rows: _Rows) -> None:
        """Add the counts of one part."""
        if again := self.query_ids.intersection(rows.query_ids):
            raise ValueError(f"the query {min(again)!r} is in two parts, so that its negatives cannot be counted")
        self.query_ids.update(rows.query_ids)
        negative = ~rows.relevant
        groups = {"positives": rows.relevant, "negatives": negative}
        if rows.hidden is not None:
            groups["hidden"] = rows.hidden
        for name, mask in groups.items():
            self.totals[name] += int(mask.sum())
            found, _ = np.histogram(probabilities(rows.scores[mask]), BINS, (0.0, 1.0))
            self.histograms[name] += found
        self.totals["candidates"] += len(rows.scores)
        self.totals["judged_irrelevant"] += int((rows.judged & negative).sum())
        before = np.bincount(rows.of_query[negative], minlength=len(rows.query_ids))
        _add_by_type(self.negatives_by_type, rows.types, before)
        for index in range(len(self.rules)):
            self._add_at(index, rows, before)

    def _add_at(self, index: int, rows: _Rows, before: NDArray[np.int64]) -> None:
        """Add the counts of one part by one rule; `before` is the number of negatives of each query."""
        gone = self.rules[index].marks(rows, rows.judged)
        above = self.rules[index].marks(rows, np.zeros_like(rows.judged))
        lost = np.bincount(rows.of_query[gone], minlength=len(rows.query_ids))
        counts = self._points[index]
        counts["removed"] += int(gone.sum())
        counts["ranks"] += int(rows.ranks[gone].sum(dtype=np.int64))
        counts["emptied"] += int(((lost == before) & (before > 0)).sum())
        counts["halved"] += int((2 * lost > before).sum())
        counts["positives_above"] += int((above & rows.relevant).sum())
        counts["judged_irrelevant_kept"] += int((above & rows.judged & ~rows.relevant).sum())
        if rows.hidden is not None:
            counts["hidden_removed"] += int((gone & rows.hidden).sum())
        _add_by_type(self._by_type[index], rows.types, lost)

    def point(self, index: int) -> dict[str, Any]:
        """Return the counts and shares by one rule."""
        counts, totals, rule = self._points[index], self.totals, self.rules[index]
        facts = {
            rule.name: rule.value,
            "num_removed": counts["removed"],
            "share_removed": _share(counts["removed"], totals["negatives"]),
            "share_removed_by_type": {
                name: _share(self._by_type[index][name], count)
                for name, count in sorted(self.negatives_by_type.items())
            },
            "num_queries_without_negatives": counts["emptied"],
            "num_queries_halved": counts["halved"],
            "mean_negatives_left": _share(totals["negatives"] - counts["removed"], len(self.query_ids)),
            "num_judged_irrelevant_kept": counts["judged_irrelevant_kept"],
            "num_positives_above": counts["positives_above"],
            "num_positives_below": totals["positives"] - counts["positives_above"],
            "share_positives_above": _share(counts["positives_above"], totals["positives"]),
            "mean_rank_removed": _share(counts["ranks"], counts["removed"]),
        }
        if self.knows_truth:
            precision = _share(counts["hidden_removed"], counts["removed"])
            chance = _share(totals["hidden"], totals["negatives"])
            facts["precision"] = precision
            facts["recall"] = _share(counts["hidden_removed"], totals["hidden"])
            facts["times_chance"] = precision / chance if precision is not None and chance else None
        return facts


def _add_by_type(counts: Counter[str], types: list[str] | None, of_queries: NDArray[np.int64]) -> None:
    for name, count in zip(types or (), of_queries.tolist(), strict=False):
        counts[name] += count


def _share(count: int, total: int) -> float | None:
    return count / total if total else None
