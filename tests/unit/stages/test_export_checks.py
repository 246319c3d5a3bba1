"""The calibration from dev judgments and the golden pairs that are exported with a model."""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from rayrank.bundle.export import Bundle, settings_of
from rayrank.bundle.text_scorer import check_golden
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import DatasetConfig, EncoderConfig, InputConfig, PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.models.encoder import load_encoder
from rayrank.models.reranker import Reranker
from rayrank.scores.calibration import Calibration, fit
from rayrank.scores.precision import precision_table
from rayrank.stages import export_checks
from rayrank.stages.export_checks import make_checks
from rayrank.text.pieces import PieceEncoder, load_tokenizer, save_tokenizer
from rayrank.text.words import word_table

CONFIG = PipelineConfig(encoder=EncoderConfig(layers=1), input=InputConfig(length=40, query_length=8))
NUM_QUERIES, DEPTH = 12, 9
WORDS = "the insouciantly painted bogue of faldumondo lies by its lighthouse since 1822 as a quay".split()


def finished(stage: str, store: Store, config: PipelineConfig = CONFIG, **facts: object) -> Artifact:
    return store.finish(store.artifact(stage, config), config, time.monotonic(), facts, stage)


def texts(prefix: str, name: str, lengths: list[int], tokenizer: PreTrainedTokenizerFast) -> pa.Table:
    rng = np.random.default_rng(len(lengths))
    written = [" ".join(rng.choice(WORDS, length)) for length in lengths]
    pieces = PieceEncoder(tokenizer.backend_tokenizer.to_str(), 512)(written)
    ids = [f"{prefix}{row}" for row in range(len(lengths))]
    return pa.table({name: ids, "text": pa.array(written, pa.large_string()), "piece_ids": pieces})


def storage(
    root: Path,
    split: str,
    tokenizer: PreTrainedTokenizerFast,
    config: PipelineConfig = CONFIG,
    grade: Callable[[int], int] = lambda rank: 1,
) -> Store:
    """A corpus whose passages are one to ninety words long, and candidates of one split; every third is relevant."""
    store = Store(str(root))
    corpus = finished("corpus", store, config, shards=["passages/part-0.parquet"], splits={})
    save_tokenizer(tokenizer, corpus)
    corpus.write_table("queries.parquet", texts("q", "query_id", [3 + row for row in range(NUM_QUERIES)], tokenizer))
    lengths = [1 + row % 90 for row in range(NUM_QUERIES * DEPTH)]
    corpus.write_table("passages/part-0.parquet", texts("p", "passage_id", lengths, tokenizer))
    query_ids = [f"q{row}" for row in range(NUM_QUERIES)]
    types = finished("query_types", store, config)
    types.write_table(
        "query_types.parquet", pa.table({"query_id": query_ids, "query_type": ["location"] * NUM_QUERIES})
    )
    rows = [(f"q{row // DEPTH}", f"p{row}", row % DEPTH + 1, 0.0) for row in range(NUM_QUERIES * DEPTH)]
    judged = [(query, passage, grade(rank), split) for query, passage, rank, _ in rows if rank % 3 == 0]
    for artifact, name, schema, content in (
        (corpus, "judgments.parquet", JUDGMENTS, judged),
        (finished("candidates", store, config), f"{split}/part-0.parquet", CANDIDATES, rows),
    ):
        columns = dict(zip(schema.names, map(list, zip(*content, strict=True)), strict=True))
        artifact.write_table(name, pa.table(columns, schema=schema))
    return store


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_tokenizer(CONFIG.text.tokenizer)


@pytest.fixture(scope="module")
def model(tokenizer: PreTrainedTokenizerFast) -> Reranker:
    torch.manual_seed(0)
    return Reranker(load_encoder(CONFIG.encoder, word_table(tokenizer), CONFIG.strm), 1).eval()


def test_golden_pairs_score_from_text_as_they_did_from_stored_ids(
    model: Reranker, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    found = make_checks("drbert", model, tokenizer, CONFIG, storage(tmp_path, "dev", tokenizer))

    settings = settings_of(model, CONFIG.input, CONFIG.query_types, ["location"])
    parity = check_golden(Bundle(model, tokenizer, settings, golden=found.golden))
    assert parity.max_difference < 1e-5
    assert 40 <= parity.num_pairs <= 80
    assert len({pair.query for pair in found.golden}) == export_checks.GOLDEN_QUERIES
    assert {pair.query_type for pair in found.golden} == {"location"}
    lengths = [len(tokenizer.tokenize(pair.passage)) for pair in found.golden]
    # From one word to the longest input, after which passages are truncated at the end of a word.
    assert min(lengths) < 5
    assert CONFIG.input.length <= max(lengths) < CONFIG.input.length + 8
    assert any("insouciantly" in pair.passage for pair in found.golden)


def test_the_calibration_uses_the_dev_run_or_scores_dev_if_there_is_none(
    model: Reranker, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    store = storage(tmp_path, "dev", tokenizer)
    sampled = make_checks("drbert", model, tokenizer, CONFIG, store)
    ranks = np.tile(np.arange(1, DEPTH + 1), NUM_QUERIES)
    labels, of_query = ranks % 3 == 0, np.repeat(np.arange(NUM_QUERIES), DEPTH)
    scores = np.random.default_rng(1).normal(labels, 1).astype(np.float32)
    run = store.artifact("candidates", CONFIG).read_table("dev/part-0.parquet")
    ranked = finished("drbert", store)
    ranked.write_table("dev/part-0.parquet", run.set_column(3, CANDIDATES.field("score"), pa.array(scores)))

    from_run = make_checks("drbert", model, tokenizer, CONFIG, store)

    assert from_run.calibration == fit(scores, labels, of_query)
    assert sampled.calibration is not None
    assert sampled.calibration != from_run.calibration
    assert (sampled.calibration.num_pairs, sampled.calibration.num_queries) == (NUM_QUERIES * DEPTH, NUM_QUERIES)
    assert from_run.precision == precision_table(scores, labels, of_query, from_run.calibration)
    assert sampled.precision is not None
    assert sampled.precision.num_queries == NUM_QUERIES
    assert from_run.golden == sampled.golden
    assert "calibration error" in from_run.finding


def test_only_relevant_grades_are_calibrated_on(
    model: Reranker, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_relevant = []

    def counted(scores: np.ndarray, labels: np.ndarray, query_ids: np.ndarray) -> Calibration:
        num_relevant.append(int(np.sum(labels)))
        return fit(scores, labels, query_ids)

    monkeypatch.setattr(export_checks, "fit", counted)
    config = CONFIG.model_copy(update={"dataset": DatasetConfig(relevant_from=2)})
    store = storage(tmp_path, "dev", tokenizer, config, grade=lambda rank: 2 if rank == 3 else 1)
    rows = store.artifact("candidates", config).read_table("dev/part-0.parquet")
    scores = np.random.default_rng(1).normal(size=len(rows)).astype(np.float32)
    make_checks("drbert", model, tokenizer, config, store)
    ranked = finished("drbert", store, config)
    ranked.write_table("dev/part-0.parquet", rows.set_column(3, CANDIDATES.field("score"), pa.array(scores)))

    used = make_checks("drbert", model, tokenizer, config, store)

    labels, of_query = rows["rank"].to_numpy() == 3, np.repeat(np.arange(NUM_QUERIES), DEPTH)
    assert used.calibration == fit(scores, labels, of_query)
    # One candidate of each query has grade 2, with scores made here and with those of a run.
    assert num_relevant == [NUM_QUERIES, NUM_QUERIES]


def test_the_calibration_scores_a_bounded_number_of_pairs(
    model: Reranker, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_checks, "CALIBRATION_PAIRS", 4 * DEPTH)

    found = make_checks("drbert", model, tokenizer, CONFIG, storage(tmp_path, "dev", tokenizer))

    assert found.calibration is not None
    assert found.calibration.num_queries == 4


def test_without_a_dev_split_there_are_golden_pairs_but_no_calibration(
    model: Reranker, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    found = make_checks("drbert", model, tokenizer, CONFIG, storage(tmp_path, "train", tokenizer))

    assert found.calibration is None
    assert found.golden
    assert found.finding == "No calibration: the dataset has no dev split."


def test_without_candidates_there_are_neither_golden_pairs_nor_a_calibration(
    model: Reranker, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    found = make_checks("drbert", model, tokenizer, CONFIG, Store(str(tmp_path)))

    assert (found.calibration, found.golden) == (None, ())
    assert "storage has no candidates of dev or train" in found.finding
