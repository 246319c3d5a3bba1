"""What a model takes along to be served: how scores become probabilities, what the first stage counts beside them, and
pairs to check any server by."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.bundle.golden import GoldenPair, read_part, spread
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress
from rayrank.data.pair_set import relevant_pairs
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import Reranker
from rayrank.scores.calibration import Calibration, fit
from rayrank.text.pairs import Rows
from rayrank.text.words import CONTINUES, word_table
from rayrank.training.data import Inputs, Split, inputs_of, read_candidates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

MOST_PAIRS = 20_000
"""Scored here where dev has no run yet: a minute or two on a laptop."""

GOLDEN_QUERIES, LOOKED_AT = 8, 48
"""Queries of golden pairs, and how many candidates of each they are chosen from."""


class Companions(NamedTuple):
    """What goes into the folder beside the weights, and what there is to say about it."""

    calibration: Calibration | None
    golden: tuple[GoldenPair, ...]
    finding: str


def companions(
    name: str, model: Reranker, tokenizer: "PreTrainedTokenizerFast", config: PipelineConfig, store: Store
) -> Companions:  # fmt: skip
    """Return the calibration on dev and the golden pairs of the model of a run, as far as its data go."""
    candidates = store.find("candidates", config)
    split = next((split for split in ("dev", "train") if candidates and candidates.names(split)), None)
    if candidates is None or split is None:
        return Companions(None, (), "Without calibration and golden pairs: the candidates are not on storage any more.")
    inputs = inputs_of(config, store, {split: islice(read_candidates(candidates, split), 1)})
    golden = _golden(inputs, inputs.data.splits[split], model, tokenizer, config, store)
    if split != "dev":
        return Companions(None, golden, "Without calibration: the dataset has no dev split.")
    try:
        run = store.find(flow.RUNS[name], config)
        calibration = _of_run(run, config, store) if run else _scored_here(inputs, model)
    except DatasetError as error:
        return Companions(None, golden, str(error))
    return Companions(calibration, golden, calibration.finding())


def first_stage_weight(name: str, config: PipelineConfig, store: Store) -> float | None:
    """Return how much the first stage counts beside the model of a run, None where nobody found out."""
    if name != flow.last_run(config):
        return None
    blended = store.find("rank_fused", config)
    return float(blended.manifest["weight"]) if blended else config.fusion.weight


def _of_run(run: Artifact, config: PipelineConfig, store: Store) -> Calibration:
    """Fit to the scores of all dev candidates, which are there already."""
    judgments = store.require("corpus", config).read_table("judgments.parquet")
    judgments = judgments.filter(pc.and_(pc.equal(judgments["split"], "dev"), pc.greater(judgments["relevance"], 0)))
    rows = pa.concat_tables(read_candidates(run, "dev"))
    # A query that nobody found an answer to says nothing about scores.
    rows = rows.filter(pc.is_in(rows["query_id"], value_set=pc.unique(judgments["query_id"])))
    query_ids = rows["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    return fit(rows["score"].to_numpy(), relevant_pairs(judgments).marks(rows), query_ids)


def _scored_here(inputs: Inputs, model: Reranker) -> Calibration:
    """Fit to as many dev queries as a minute or two allows."""
    dev = inputs.data.splits["dev"]
    lengths = dev.candidates.lengths(np.arange(len(dev.queries)))
    chosen = dev.take(np.flatnonzero(lengths)[:: max(1, -(-int(lengths.sum()) // MOST_PAIRS))])
    places = range(len(chosen.queries))
    queries = np.repeat(chosen.queries, chosen.candidates.lengths(np.array(places, np.int64)))
    labels = [np.isin(chosen.candidates[place], chosen.positives[place]) for place in places]
    with progress("calibration", len(queries), "pairs") as advance:
        scores = Scorer(model, inputs.texts)(queries, chosen.candidates.values.astype(np.int64))
        advance(len(queries))
    return fit(scores, np.concatenate([np.empty(0, np.bool_), *labels]), queries)


def _golden(
    inputs: Inputs, split: Split, model: Reranker, tokenizer: "PreTrainedTokenizerFast", config: PipelineConfig,
    store: Store,
) -> tuple[GoldenPair, ...]:  # fmt: skip
    """Return pairs of a few queries with their scores, made of stored ids as in training."""
    queries, passages, scores = _chosen(inputs, split, model, word_table(tokenizer))
    query_ids, passage_ids = inputs.data.query_ids.take(queries), inputs.data.passage_ids.take(passages)
    corpus = store.require("corpus", config)
    asked = _by_id([corpus.read_table("queries.parquet", ["query_id", "text"])], query_ids)
    told = _by_id((corpus.read_table(name, ["passage_id", "text"]) for name in corpus.manifest["shards"]), passage_ids)
    types: dict[str, str] = {}
    if config.input.query_type:
        types = _by_id([store.require("query_types", config).read_table("query_types.parquet")], query_ids)
    return tuple(
        GoldenPair(
            query=read_part(asked[query_id], tokenizer, config.input.query_length),
            query_type=types.get(query_id),
            passage=read_part(told[passage_id], tokenizer, config.input.length),
            score=float(score),
        )
        for query_id, passage_id, score in zip(query_ids.to_pylist(), passage_ids.to_pylist(), scores, strict=True)
    )


def _chosen(
    inputs: Inputs, split: Split, model: Reranker, words: NDArray[np.int8]
) -> tuple[Rows, Rows, NDArray[np.float32]]:  # fmt: skip
    """Return rows and scores of pairs whose scores, lengths and numbers of cut words lie far apart."""
    found = []
    answered = np.flatnonzero(split.candidates.lengths(np.arange(len(split.queries))))
    for place in answered[spread(answered, GOLDEN_QUERIES)]:
        candidates = split.candidates[int(place)].astype(np.int64)
        passages = candidates[spread(np.arange(len(candidates)), LOOKED_AT)]
        queries = np.full(len(passages), split.queries[place])
        scores = Scorer(model, inputs.texts)(queries, passages)
        cut_words = [np.count_nonzero(words[inputs.texts.passages[int(row)]] == CONTINUES) for row in passages]
        lengths = inputs.texts.lengths(queries, passages)
        chosen = np.unique(np.concatenate([spread(scores, 4), spread(lengths, 3), spread(cut_words, 3)]))
        found.append((queries[chosen], passages[chosen], scores[chosen]))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    queries, passages, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    return queries, passages, scores


def _by_id(tables: Iterable[pa.Table], ids: pa.Array) -> dict[str, str]:
    """Return the second column of the rows that have one of these ids in the first."""
    found: dict[str, str] = {}
    for table in tables:
        rows = table.filter(pc.is_in(table[0], value_set=pc.unique(ids)))
        found |= zip(rows[0].to_pylist(), rows[1].to_pylist(), strict=True)
    return found
