"""Which training candidates are negatives, and which become positives: the noise filter and the window of ranks.

All of it is computed from stored scores when lists are built, so changing a setting of the filter scores nothing anew.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.core.run_kinds import CANDIDATES as FIRST_STAGE
from rayrank.data.pair_set import Mask, PairSet, relevant
from rayrank.data.rows import ranked
from rayrank.scores.noise_filter import near_positives, removed
from rayrank.training.data import read_candidates


def training_candidates(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    """Yield the rows that negatives are drawn from; lists leave judged positives out when they draw."""
    if config.listwise.negatives_from or config.listwise.negative_ranks:
        return _in_window(config, store)
    return filtered_candidates(config, store)


def filtered_candidates(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    """Yield the training candidates without those that the noise filter removes: D' in the paper."""
    if not config.noise.reads_scores:  # the filter removes nothing, and there may be no noise artifact
        yield from read_candidates(store.require("candidates", config), "train")
        return
    for scored, gone in _with_noise(config, store):
        yield scored.filter(pa.array(~gone))


def _in_window(config: PipelineConfig, store: Store) -> Iterator[pa.Table]:
    """Yield the rows of `listwise.negatives_from` whose rank by score is in the window, without noise.

    From the second round on, these are the candidates as the model of the round before ranks them.
    """
    first, last = config.listwise.negative_ranks or (1, np.iinfo(np.int32).max)
    noise = None
    if config.noise.reads_scores:
        gone = [scored.filter(pa.array(marks)) for scored, marks in _with_noise(config, store)]
        noise = PairSet(pa.concat_tables([CANDIDATES.empty_table(), *gone]))
    listwise = config.listwise
    node = flow.run_node(listwise.round_before or listwise.negatives_from or FIRST_STAGE, config, train=True)
    tables: Iterable[pa.Table] = read_candidates(store.require(node, config), "train")
    if not flow.run_named(FIRST_STAGE, config)[2].has_scores:
        tables = [pa.concat_tables(tables)]  # files of such a first stage may separate a query's rows
    for table in tables:
        rows = ranked(table)
        ranks = rows["rank"].to_numpy()
        kept = (ranks >= first) & (ranks <= last)
        yield rows.filter(pa.array(kept if noise is None else kept & ~noise.marks(rows)))


def _with_noise(config: PipelineConfig, store: Store) -> Iterator[tuple[pa.Table, Mask]]:
    """Yield the scored training candidates, and which of them the noise filter removes."""
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
        yield scored, gone


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
    found = pa.concat_tables([CANDIDATES.empty_table(), *of_positives]).select(["query_id", "score"])
    return found.group_by("query_id").aggregate([("score", "max")])


def _of_queries(best: pa.Table, rows: pa.Table) -> NDArray[np.float64]:
    """Return the best positive's score for each row, infinite for a query without one."""
    places = pc.index_in(rows["query_id"], value_set=best["query_id"].combine_chunks())
    return best["score_max"].take(places).cast(pa.float64()).fill_null(np.inf).to_numpy()  # type: ignore[no-any-return]
