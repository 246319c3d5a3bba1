"""The judged dev queries that an export brings along."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerFast

from rayrank.bundle.dev_sample import JudgedDocument, JudgedQuery
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import InputConfig, PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.scores.fusion import Feature, Fusion
from rayrank.stages import dev_sample as stage
from rayrank.stages.dev_sample import dev_sample
from rayrank.text.pieces import load_tokenizer

CONFIG = PipelineConfig(input=InputConfig(length=24, query_length=8, query_type=False))
# Query 2's relevant passage is no candidate, and query 3 has only an irrelevant judgment.
JUDGED = [("q0", "p2", 1), ("q1", "p5", 3), ("q2", "p9", 1), ("q3", "p1", 0), ("q4", "p1", 2), ("q4", "p3", 1)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_tokenizer(CONFIG.text.tokenizer)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Five queries with the candidates p1 to p5 at the ranks 1 to 5; three of them fit into the sample."""
    monkeypatch.setattr(stage, "NUM_CANDIDATES", 3)
    store = Store(str(tmp_path))
    corpus = finished("corpus", store)
    texts = pa.array([f"text {number} " * 100 for number in range(10)], pa.large_string())
    corpus.write_table("part-0.parquet", pa.table({"passage_id": [f"p{row}" for row in range(10)], "text": texts}))
    queries = {"query_id": [f"q{row}" for row in range(5)], "text": [f"question {row}" for row in range(5)]}
    corpus.write_table("queries.parquet", pa.table(queries))
    rows = [(f"q{row}", f"p{rank}", rank, 10.0 - rank) for row in range(5) for rank in range(1, 6)]
    judged = [(query, passage, grade, split) for query, passage, grade in JUDGED for split in ("dev",)]
    candidates = finished("candidates", store)
    for artifact, name, schema, content in (
        (corpus, "judgments.parquet", JUDGMENTS, judged),
        (candidates, "dev/part-0.parquet", CANDIDATES, rows),
    ):
        columns = dict(zip(schema.names, map(list, zip(*content, strict=True)), strict=True))
        artifact.write_table(name, pa.table(columns, schema=schema))
    return store


def finished(node: str, store: Store) -> Artifact:
    facts = {"shards": ["part-0.parquet"]}
    return store.finish(store.artifact(node, CONFIG), CONFIG, time.monotonic(), facts, node)


def test_queries_with_a_relevant_candidate_are_taken_with_their_best_candidates(
    store: Store, tokenizer: PreTrainedTokenizerFast
) -> None:
    found = dev_sample(200, tokenizer, CONFIG, store)

    def passages(*numbers: int) -> tuple[JudgedDocument, ...]:
        # What the model reads of a text: 24 word pieces, here words.
        return tuple(JudgedDocument(text=" ".join([f"text {number}"] * 12)) for number in numbers)

    assert found == (
        JudgedQuery(query="question 0", documents=passages(1, 2, 3), relevance=(0, 1, 0), first_stage_scores=(9, 8, 7)),
        # The relevant candidate at rank 5 takes the place of the one at rank 3.
        JudgedQuery(query="question 1", documents=passages(1, 2, 5), relevance=(0, 0, 3), first_stage_scores=(9, 8, 5)),
        JudgedQuery(query="question 4", documents=passages(1, 2, 3), relevance=(2, 0, 1), first_stage_scores=(9, 8, 7)),
    )


def test_the_size_of_the_sample_is_bounded(
    store: Store, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [each.query for each in dev_sample(2, tokenizer, CONFIG, store)] == ["question 0", "question 4"]
    assert dev_sample(0, tokenizer, CONFIG, store) == ()
    size = sum(len(each.text) for each in dev_sample(1, tokenizer, CONFIG, store)[0].documents)
    monkeypatch.setattr(stage, "MAX_BYTES", 2 * size)
    assert len(dev_sample(200, tokenizer, CONFIG, store)) == 2


def test_documents_have_the_fields_of_the_fusion(store: Store, tokenizer: PreTrainedTokenizerFast) -> None:
    prices = {"passage_id": ["p1", "p3", "p9"], "price": [2.5, None, 9.0]}
    finished("passage_fields", store).write_table("fields.parquet", pa.table(prices))
    features = (Feature(name="drbert", kind="run"), Feature(name="price", kind="field", points=((1, 0), (9, 1))))
    fusion = Fusion(form="linear", normalize="rank", features=features, weights=(1, 1), model="drbert")

    (found,) = dev_sample(1, tokenizer, CONFIG, store, fusion)

    assert [document.fields for document in found.documents] == [{"price": 2.5}, {}, {}]


def test_without_dev_candidates_there_is_no_sample(tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    assert dev_sample(200, tokenizer, CONFIG, Store(str(tmp_path))) == ()


def test_without_a_relevant_candidate_there_is_no_sample(store: Store, tokenizer: PreTrainedTokenizerFast) -> None:
    judged = [["q2", "q3"], ["p9", "p1"], [1, 0], ["dev", "dev"]]
    store.require("corpus", CONFIG).write_table("judgments.parquet", pa.table(judged, schema=JUDGMENTS))
    assert dev_sample(200, tokenizer, CONFIG, store) == ()
