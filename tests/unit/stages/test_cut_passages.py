"""The summary says how much of the relevant passages does not fit into the input."""

import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import MINILM, InputConfig, PipelineConfig, TextConfig
from rayrank.core.records import JUDGMENTS, PASSAGES, QUERIES
from rayrank.stages import cut_passages as stage
from rayrank.stages.cut_passages import Cut, cut_passages, finding
from rayrank.text.pieces import PieceEncoder, load_tokenizer, save_tokenizer

STORED = 40
TEXTS = {"short": "red " * 5, "long": "red " * 30, "longer than stored": "red " * 100, "unjudged": "red " * 90}
QUERY = "blue blue blue"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A corpus that stores 40 word pieces of a passage; every word here is one piece."""
    store, config = Store(str(tmp_path_factory.mktemp("storage"))), configured(32)
    tokenizer = load_tokenizer(MINILM)
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), STORED)
    corpus = store.artifact("corpus", config)
    save_tokenizer(tokenizer, corpus)
    passages = [list(TEXTS), list(TEXTS.values()), encode(list(TEXTS.values()))]
    corpus.write_table("passages/part.parquet", pa.table(dict(zip(PASSAGES.names, passages, strict=True)), PASSAGES))
    queries = [["q1", "q2"], ["train", "dev"], ["", ""], [QUERY] * 2, encode([QUERY] * 2)]
    corpus.write_table("queries.parquet", pa.table(dict(zip(QUERIES.names, queries, strict=True)), QUERIES))
    rows = [
        ("q1", "short", 1, "train"),
        ("q1", "long", 1, "train"),
        ("q1", "longer than stored", 1, "train"),
        ("q2", "short", 1, "dev"),
        ("q2", "longer than stored", 0, "dev"),
    ]
    judgments = [pa.array(column) for column in zip(*rows, strict=True)]
    corpus.write_table("judgments.parquet", pa.table(dict(zip(JUDGMENTS.names, judgments, strict=True)), JUDGMENTS))
    store.finish(corpus, config, time.monotonic(), {"shards": ["passages/part.parquet"]})
    return store


def configured(length: int, query_type: bool = False) -> PipelineConfig:
    return PipelineConfig(
        text=TextConfig(passage_pieces=STORED),
        input=InputConfig(length=length, query_length=8, query_type=query_type),
    )


def test_relevant_pairs_are_counted_with_the_pieces_that_the_corpus_does_not_store(store: Store) -> None:
    found = cut_passages(configured(32), store)

    # Beside [CLS], three pieces of the query and two separators, 26 pieces of a passage fit.
    assert found == {"train": Cut(3, 2, 5 + 30 + 100, 4 + 74), "dev": Cut(1, 0, 5, 0)}


@pytest.mark.parametrize("texts_at_once", [1, 3])
def test_the_texts_of_a_batch_are_tokenised_at_a_time(
    store: Store, texts_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, read = cut_passages(configured(32), store), []

    def batches(self: Artifact, name: str, columns: list[str], rows: int = 1 << 16) -> Iterator[pa.RecordBatch]:
        for batch in whole(self, name, columns, rows):
            read.append((columns, len(batch)))
            yield batch

    whole = Artifact.batches
    monkeypatch.setattr(Artifact, "batches", batches)
    monkeypatch.setattr(stage, "TEXTS_AT_ONCE", texts_at_once)

    assert cut_passages(configured(32), store) == before
    assert max(count for columns, count in read if "text" in columns) == texts_at_once


def test_a_type_takes_its_room(store: Store) -> None:
    assert cut_passages(configured(32, query_type=True), store)["train"].num_unread == 6 + 76


def test_the_sentence_names_the_splits_that_lose_text_and_how_much(store: Store) -> None:
    config = configured(32)

    assert finding(cut_passages(config, store), config.input) == [
        "input.length=32 cuts off the end of 66.7% of train's relevant passages; 55.7% of the text of all relevant "
        "passages is never read; to read more of it, set input.long_passages=windows and "
        "text.passage_pieces=91"
    ]


def test_windows_read_on_until_their_number_is_used_up(store: Store) -> None:
    config = configured(32)
    # Windows of 10 pieces begin at 0, 10 and 20.
    windows = {"long_passages": "windows", "window_length": 10, "window_stride": 10, "max_windows": 3}
    config = config.model_copy(update={"input": config.input.model_copy(update=windows)})

    found = cut_passages(config, store)

    assert found["train"] == Cut(num_pairs=3, num_cut=1, num_pieces=135, num_unread=70)
    assert finding(found, config.input)[0].startswith("input.max_windows=3 cuts off the end of 33.3% of train's")


def test_nothing_is_said_if_everything_fits_or_nearly(store: Store) -> None:
    config = configured(128)

    assert finding(cut_passages(config, store), config.input) == []
    assert finding({"train": Cut(1000, 1, 100_000, 499)}, config.input) == []
    assert finding({"train": Cut(1000, 1, 100_000, 501)}, config.input) != []
    assert finding({}, config.input) == []
