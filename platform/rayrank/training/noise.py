"""What the noise filter does to the training candidates: which stay, and which become positives.

All of it is computed from stored scores when lists are built, so changing a setting of the filter scores nothing anew.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import JUDGMENTS
from rayrank.data.pair_set import PairSet, relevant
from rayrank.scores.noise_filter import near_positives, removed
from rayrank.training.data import read_candidates


def filtered_candidates(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    """Yield the training candidates without those that the noise filter removes: D' in the paper."""
    judgments, noise = store.require("corpus", config).read_table("judgments.parquet"), config.noise
    judged = PairSet(judgments)
    best = None
    if noise.margin is not None:
        best = _best_positives(config, store, PairSet(relevant(judgments, config.dataset.relevant_from)))
    for scored in _scored(config, store):
        scores, known = scored["score"].to_numpy(), judged.marks(scored)
        gone = removed(scores, known, noise.threshold)
        if best is not None and noise.margin is not None:
            gone |= near_positives(scores, _of_queries(best, scored), known, noise.margin)
        yield scored.filter(pa.array(~gone))


def relabelled(config: PipelineConfig, store: Store) -> pa.Table | None:
    """Return the candidates that become positives, as judgments of the lowest relevant grade; None if none may."""
    if config.noise.relabel is None:
        return None
    judged = PairSet(store.require("corpus", config).read_table("judgments.parquet"))
    found = [JUDGMENTS.empty_table()]
    for scored in _scored(config, store):
        sure = removed(scored["score"].to_numpy(), judged.marks(scored), config.noise.relabel)
        pairs = scored.select(["query_id", "passage_id"]).filter(pa.array(sure))
        grades = pa.array(np.full(len(pairs), config.dataset.relevant_from), JUDGMENTS.field("relevance").type)
        splits = pa.array(["train"] * len(pairs), JUDGMENTS.field("split").type)
        found.append(pa.table([*pairs.columns, grades, splits], schema=JUDGMENTS))
    return pa.concat_tables(found)


def _scored(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    return read_candidates(store.require("noise", config), "train")


def _best_positives(config: PipelineConfig, store: Store, positives: PairSet) -> pa.Table:
    """Return (query_id, score_max) of the queries that have a scored positive."""
    # A first pass over the scores, because the rows of a query may be spread over files.
    of_positives = [rows.filter(pa.array(positives.marks(rows))) for rows in _scored(config, store)]
    found = pa.concat_tables(of_positives).select(["query_id", "score"])
    return found.group_by("query_id").aggregate([("score", "max")])


def _of_queries(best: pa.Table, rows: pa.Table) -> NDArray[np.float64]:
    """Return the best positive's score for each row, infinite for a query without one."""
    places = pc.index_in(rows["query_id"], value_set=best["query_id"].combine_chunks())
    return best["score_max"].take(places).cast(pa.float64()).fill_null(np.inf).to_numpy()  # type: ignore[no-any-return]
