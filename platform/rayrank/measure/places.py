"""Where a run places relevant passages: on which rank the first one is, and how many are above a rank."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.data.rows import by_query, long_column
from rayrank.measure.metrics import Floats, Ints, JudgedRows, Metric, recall, reciprocal_rank

TOP = 10
"""The cutoff of the reciprocal rank (MRR@10), and of the ranks that count as the top."""
CUTOFFS = (10, 20, 50, 100, 200, 500, 1000)
"""Ranks at which tables show recall."""
DRAWN = (1, 2, 5, *CUTOFFS)
"""Ranks at which plots show recall; the depth of a run is added."""


@dataclass(frozen=True)
class Places:
    """Where a run places relevant passages, query by query in the order of the ids of the judged queries."""

    depth: int
    """The largest number of passages that a query has."""
    reciprocal: Floats
    """The reciprocal rank, 0 below the top."""
    first: Ints
    """The rank of the first relevant passage; 0 if the run has none."""
    recall: dict[int, float]
    """Mean recall by cutoff, up to the depth."""


@dataclass(frozen=True)
class Shares:
    """Shares of the judged queries by the place of their first relevant passage; they add up to 1."""

    out_of_reach: float
    below_top: float
    in_top: float
    first: float


def places(qrels: pa.Table, run: pa.Table, relevant_from: int = 1) -> Places:
    """Return where a run places relevant passages; a recall beyond the run's depth is not computed."""
    query_ids, of_query = by_query(run)
    depth = int(np.bincount(of_query, minlength=1).max())
    # A run without rows has a recall too, of 0 at rank 1.
    cutoffs = [cutoff for cutoff in DRAWN if cutoff < depth] + [max(1, depth)]
    metrics: dict[str, Metric] = {
        "reciprocal": reciprocal_rank(TOP),
        "first": lambda run, ideal: run.sum_per_query((run.num_relevant_so_far == 1) * run.ranks),
        **{f"R@{cutoff}": recall(cutoff) for cutoff in cutoffs},
    }
    relevant = qrels.filter(pc.greater_equal(qrels["relevance"], relevant_from))
    rows = run.filter(pa.array(_deciding(relevant, run, query_ids, of_query)))
    found = JudgedRows(qrels, rows, relevant_from).measure(rows["score"].to_numpy(), metrics)
    means = found.means()
    return Places(
        depth,
        found.values["reciprocal"],
        found.values["first"].astype(np.int64),
        {cutoff: means[f"R@{cutoff}"] for cutoff in cutoffs},
    )


def _deciding(relevant: pa.Table, run: pa.Table, query_ids: list[str], of_query: Ints) -> NDArray[np.bool_]:
    """Return which rows score at least as high as the last relevant one of their query.

    The others, often nine of ten, affect no rank of a relevant passage, and sorting them would take most of the time.
    """
    passages = long_column(relevant, "passage_id").unique()
    place = pc.index_in(run["passage_id"].cast(passages.type), passages).fill_null(-1).to_numpy()
    candidates = np.flatnonzero(place >= 0)
    of_relevant = pc.index_in(long_column(relevant, "query_id"), pa.array(query_ids, pa.large_string())).fill_null(-1)
    judged = pc.index_in(long_column(relevant, "passage_id"), passages).to_numpy()
    pairs = (of_relevant.to_numpy().astype(np.int64) << 32) + judged
    hits = candidates[np.isin((of_query[candidates] << 32) + place[candidates], pairs)]
    scores = run["score"].to_numpy()
    lowest = np.full(len(query_ids), np.inf)
    np.minimum.at(lowest, of_query[hits], scores[hits])
    return scores >= lowest[of_query]  # type: ignore[no-any-return]


def shares(first: Ints) -> Shares:
    """Return the shares of queries by the rank of the first relevant passage, which is 0 where there is none."""
    return Shares(
        out_of_reach=float((first == 0).mean()),
        below_top=float((first > TOP).mean()),
        in_top=float(((first > 1) & (first <= TOP)).mean()),
        first=float((first == 1).mean()),
    )
