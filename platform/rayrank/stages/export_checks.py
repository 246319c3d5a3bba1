"""What is exported besides the model: calibration, weight of the first stage, golden pairs to check servers with."""

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.bundle.golden import GoldenPair, quantile_indices, truncate_after_word
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError
from rayrank.core.progress import progress
from rayrank.core.run_kinds import CANDIDATES
from rayrank.models.inference.scorer import Scorer
from rayrank.models.reranker import Reranker
from rayrank.runs.fuse import FuseSettings
from rayrank.runs.interpolate import InterpolateSettings
from rayrank.runs.reading import dev_pairs
from rayrank.scores.calibration import Calibration, fit
from rayrank.scores.fusion import FUSION, Fusion
from rayrank.scores.precision import PrecisionTable, precision_table
from rayrank.stages.golden_fusion import with_fused_scores
from rayrank.text.ragged import Rows
from rayrank.text.words import CONTINUES, word_table
from rayrank.training.data import Inputs, Split, inputs_of, read_candidates

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CALIBRATION_PAIRS = 20_000
"""Dev pairs that are scored for the calibration if storage has no dev scores: a minute or two on a laptop."""

GOLDEN_QUERIES, GOLDEN_CANDIDATES = 8, 48
"""Queries with golden pairs, and the candidates per query from which these pairs are chosen."""


class ExportChecks(NamedTuple):
    """The calibration, the thresholds and the golden pairs of a model, and a sentence about them for the user."""

    finding: str
    golden: tuple[GoldenPair, ...] = ()
    calibration: Calibration | None = None
    precision: PrecisionTable | None = None


class Scored(NamedTuple):
    """Dev candidates: their scores, whether each is relevant, and their queries."""

    logits: NDArray[np.float32]
    labels: NDArray[np.bool_]
    query_ids: NDArray[np.integer]


def make_checks(
    name: str, model: Reranker, tokenizer: "PreTrainedTokenizerFast", config: PipelineConfig, store: Store,
    fusion: Fusion | None = None,
) -> ExportChecks:  # fmt: skip
    """Return the calibration on dev and the golden pairs of the model behind a run, as far as storage has the data.

    With a fusion, golden pairs of dev have their features and fused scores.
    """
    candidates = store.find("candidates", config)
    split = next((split for split in ("dev", "train") if candidates and candidates.names(split)), None)
    if candidates is None or split is None:
        return ExportChecks("No calibration and no golden pairs: storage has no candidates of dev or train.")
    inputs = inputs_of(config, store, {split: islice(read_candidates(candidates, split), 1)})
    golden, ids = _golden(inputs, inputs.data.splits[split], model, tokenizer, config, store)
    if fusion and split == "dev":
        golden = with_fused_scores(golden, ids, fusion, config, store)
    if split != "dev":
        return ExportChecks("No calibration: the dataset has no dev split.", golden)
    try:
        run = store.find(flow.run_node(name, config), config)
        scored = Scored(*dev_pairs(run, config, store)) if run else _scored_sample(inputs, model)
        calibration = fit(*scored)
    except DatasetError as error:
        return ExportChecks(str(error), golden)
    return ExportChecks(calibration.finding(), golden, calibration, precision_table(*scored, calibration))


def first_stage_weight(name: str, config: PipelineConfig, store: Store) -> float | None:
    """Return the weight of the first stage's scores in the interpolation with a run, if there is one.

    Endpoints normalise by minimum and maximum, so the weight of an interpolation of z-scores or ranks is not returned.
    """
    for other, settings in config.runs.items():
        if not isinstance(settings, InterpolateSettings) or settings.of != (name, CANDIDATES):
            continue
        if settings.normalize == "min-max":
            if found := store.find(flow.run_node(other, config), config):
                return float(found.manifest["weight"])
            weights = settings.weights()
            return weights[1] if weights else None
    return None


def fusion_with(name: str, config: PipelineConfig, store: Store) -> Fusion | None:
    """Return what the first run of kind fuse that reads a run has learned, if such a run is on storage."""
    for other, settings in config.runs.items():
        reads = isinstance(settings, FuseSettings) and name in settings.of
        if reads and (found := store.find(flow.run_node(other, config), config)):
            fusion = Fusion.model_validate(found.read_json(FUSION))
            first, runs = config.candidates.first_stage, [each.name for each in fusion.features if each.kind == "run"]
            return fusion.model_copy(update={"model": name, "first_stage": first if first in runs else ""})
    return None


def calibrate_on_run(run: Artifact, config: PipelineConfig, store: Store) -> Calibration:
    """Fit the calibration to a run's scores of all dev candidates."""
    return fit(*dev_pairs(run, config, store))


def _scored_sample(inputs: Inputs, model: Reranker) -> Scored:
    """Score about CALIBRATION_PAIRS candidates, all those of evenly spaced dev queries."""
    dev = inputs.data.splits["dev"]
    lengths = dev.candidates.lengths(np.arange(len(dev.queries)))
    chosen = dev.take(np.flatnonzero(lengths)[:: max(1, -(-int(lengths.sum()) // CALIBRATION_PAIRS))])
    rows = range(len(chosen.queries))
    queries = np.repeat(chosen.queries, chosen.candidates.lengths(np.array(rows, np.int64)))
    labels = [np.isin(chosen.candidates[row], chosen.positives[row]) for row in rows]
    with progress("calibration", len(queries), "pairs") as advance:
        scores = inputs.scorer(Scorer(model, inputs.texts))(queries, chosen.candidates.values.astype(np.int64))
        advance(len(queries))
    return Scored(scores, np.concatenate([np.empty(0, np.bool_), *labels]), queries)


def _golden(
    inputs: Inputs, split: Split, model: Reranker, tokenizer: "PreTrainedTokenizerFast", config: PipelineConfig,
    store: Store,
) -> tuple[tuple[GoldenPair, ...], pa.Table]:  # fmt: skip
    """Return pairs of a few queries as text, with their scores computed from the stored ids; and the pairs' ids."""
    queries, passages, scores = _choose_pairs(inputs, split, model, word_table(tokenizer))
    query_ids, passage_ids = inputs.data.query_ids.take(queries), inputs.data.passage_ids.take(passages)
    corpus = store.require("corpus", config)
    query_texts = by_id([corpus.read_table("queries.parquet", ["query_id", "text"])], query_ids)
    shards = (corpus.read_table(name, ["passage_id", "text"]) for name in corpus.manifest["shards"])
    passage_texts = by_id(shards, passage_ids)
    types: dict[str, str] = {}
    if config.input.query_type:
        types = by_id([store.require("query_types", config).read_table("query_types.parquet")], query_ids)
    golden = tuple(
        GoldenPair(
            query=truncate_after_word(query_texts[query_id], tokenizer, config.input.query_length),
            query_type=types.get(query_id),
            passage=truncate_after_word(passage_texts[passage_id], tokenizer, config.input.pieces_read()),
            score=float(score),
        )
        for query_id, passage_id, score in zip(query_ids.to_pylist(), passage_ids.to_pylist(), scores, strict=True)
    )
    return golden, pa.table({"query_id": query_ids, "passage_id": passage_ids})


def _choose_pairs(
    inputs: Inputs, split: Split, model: Reranker, words: NDArray[np.int8]
) -> tuple[Rows, Rows, NDArray[np.float32]]:  # fmt: skip
    """Return rows and scores of pairs that differ much in score, length and number of words of several pieces."""
    found = []
    with_candidates = np.flatnonzero(split.candidates.lengths(np.arange(len(split.queries))))
    for row in with_candidates[quantile_indices(with_candidates, GOLDEN_QUERIES)]:
        candidates = split.candidates[int(row)].astype(np.int64)
        passages = candidates[quantile_indices(np.arange(len(candidates)), GOLDEN_CANDIDATES)]
        queries = np.full(len(passages), split.queries[row])
        scores = inputs.scorer(Scorer(model, inputs.texts))(queries, passages)
        texts = inputs.data.passages
        continued = [np.count_nonzero(words[texts[int(passage)]] == CONTINUES) for passage in passages]
        lengths = texts.lengths(passages)
        wanted = [quantile_indices(scores, 4), quantile_indices(lengths, 3), quantile_indices(continued, 3)]
        chosen = np.unique(np.concatenate(wanted))
        found.append((queries[chosen], passages[chosen], scores[chosen]))
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32)
    queries, passages, scores = (np.concatenate(column) for column in zip(*found, strict=True))
    return queries, passages, scores


def by_id(tables: Iterable[pa.Table], ids: pa.Array) -> dict[str, str]:
    """Return a dict from ids to the second column of the tables, whose first column holds the ids."""
    found: dict[str, str] = {}
    for table in tables:
        rows = table.filter(pc.is_in(table[0], value_set=pc.unique(ids)))
        found |= zip(rows[0].to_pylist(), rows[1].to_pylist(), strict=True)
    return found
