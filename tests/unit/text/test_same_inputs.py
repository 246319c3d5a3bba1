"""Training, scoring from text, serving and explaining read the same ids for the same texts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings, strategies as st
from transformers import BertConfig, BertModel, BertTokenizer

from rayrank.bundle import explain
from rayrank.bundle.export import Bundle, export, load, settings_of
from rayrank.bundle.text_scorer import pair_texts
from rayrank.core.config import InputConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.core.records import JUDGMENTS
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.serve.config import read
from rayrank.serve.model import ServedModel
from rayrank.serve.records import Ask
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.template import Template
from rayrank.text.words import word_table
from rayrank.training import data

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] what is a bog ##ue fish of number ##s entity ? .".split()
WORDS = st.sampled_from(["what", "is", "a", "bogue", "fish", "of", "numbers", "entity", "?", "."])
LENGTH, QUERY_LENGTH = 24, 8


def text(most: int, least: int = 0) -> st.SearchStrategy[str]:
    return st.lists(WORDS, min_size=least, max_size=most).map(" ".join)


class Read(NamedTuple):
    """One input without its padding."""

    ids: list[int]
    token_types: list[int]


class Models(NamedTuple):
    """One re-ranker, exported and served."""

    exported: Bundle
    served: ServedModel


@pytest.fixture(scope="module", params=[True, False], ids=["types", "no types"])
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Models]:
    folder: Path = tmp_path_factory.mktemp("model")
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder / "words"))
    tokenizer = load_tokenizer(str(folder / "words"))
    shape = BertConfig(
        vocab_size=len(VOCABULARY), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = Reranker(Encoder(BertModel(shape), word_table(tokenizer), StrmConfig()), 1).eval()
    inputs = InputConfig(length=LENGTH, query_length=QUERY_LENGTH, query_type=request.param)
    settings = settings_of(model, inputs, QueryTypesConfig(), [])
    export(str(folder / "model"), Bundle(model, tokenizer, settings, card="# A card\n"))
    served = ServedModel(read({"model": str(folder / "model")}))
    yield Models(load(str(folder / "model")), served)
    asyncio.run(served.close())


class Corpus:
    """A corpus of some queries and passages, as its stage stores it."""

    def __init__(self, exported: Bundle, queries: list[str], passages: list[str]) -> None:
        tokenizer = exported.tokenizer.backend_tokenizer.to_str()
        query_pieces, passage_pieces = PieceEncoder(tokenizer, 64), PieceEncoder(tokenizer, 512)
        self.manifest = {"shards": ["passages.parquet"]}
        self.url = f"memory://{uuid4()}"
        self._tables = {
            "queries.parquet": pa.table({"query_id": _ids(queries), "piece_ids": query_pieces(queries)}),
            "passages.parquet": pa.table({"passage_id": _ids(passages), "piece_ids": passage_pieces(passages)}),
            "judgments.parquet": JUDGMENTS.empty_table(),
        }

    def read_table(self, name: str, columns: list[str] | None = None) -> pa.Table:
        return self._tables[name] if columns is None else self._tables[name].select(columns)

    def batches(self, name: str, columns: list[str]) -> list[pa.RecordBatch]:
        return self.read_table(name, columns).to_batches()


def _ids(texts: list[str]) -> list[str]:
    return [str(row) for row in range(len(texts))]


def unpadded(batch: PaddedBatch) -> list[Read]:
    return [
        Read(ids[mask.bool()].tolist(), types[mask.bool()].tolist()) for ids, mask, types in zip(*batch, strict=True)
    ]


def batch_of(texts: PairTexts) -> list[Read]:
    rows = np.arange(len(texts.prefixes))
    return unpadded(texts.padded(rows, rows, torch.device("cpu")))


def trained(exported: Bundle, queries: list[str], passages: list[str], types: list[str]) -> list[Read]:
    template = Template.of(exported.tokenizer, exported.settings.input)
    named = pa.table({"query_id": _ids(queries), "query_type": types}) if template.has_type else None
    corpus: Any = Corpus(exported, queries, passages)
    found = data.load(corpus, named, template, exported.tokenizer, {})
    return batch_of(PairTexts(found.prefixes, found.passages, template))


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(st.tuples(text(20), text(30), text(30, least=1)), min_size=1, max_size=4))
def test_training_scoring_serving_and_explaining_read_the_same_ids(
    models: Models, rows: list[tuple[str, str, str]]
) -> None:
    exported, served = models
    queries, passages, types = (list(column) for column in zip(*rows, strict=True))

    scored = batch_of(pair_texts(exported, queries, passages, types if exported.settings.input.query_type else None))

    assert trained(exported, queries, passages, types) == scored
    for (query, passage, kind), expected in zip(rows, scored, strict=True):
        inputs = served.reader.read_at_once(Ask(query, [passage], kind))
        ((prefix, piece_ids),) = inputs.pairs
        assert batch_of(served.reader.texts([prefix], [piece_ids])) == [expected]
        assert inputs.lengths == [len(expected.ids)] <= [LENGTH]
        try:
            explained, texts, cut = explain._read(exported, query, passage, kind)
        except ConfigError:
            assert not len(piece_ids)
            continue
        assert batch_of(texts) == [expected]
        assert [piece.id for piece in explained] == expected.ids
        assert inputs.cut == ([0] if cut else [])


@pytest.mark.parametrize("models", [True], indirect=True)
def test_an_overlong_type_leaves_room_for_the_query_and_four_pieces_of_the_passage(models: Models) -> None:
    exported, served = models
    query, passage, kind = "what is a fish", "fish " * 30, "number " * 99

    (scored,) = batch_of(pair_texts(exported, [query], [passage], [kind]))

    pieces = exported.tokenizer.convert_ids_to_tokens(scored.ids)
    assert pieces == ["[CLS]", *["number"] * 12, *"[SEP] what is a fish [SEP] fish fish fish fish [SEP]".split()]
    assert trained(exported, [query], [passage], [kind]) == [scored]
    assert batch_of(explain._read(exported, query, passage, kind)[1]) == [scored]
    assert served.reader.read_at_once(Ask(query, [passage], kind)).lengths == [LENGTH]
