"""A model with markers scores the same in Python, after export, in the endpoint and in an explanation."""

import asyncio
import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.bundle.explain import explain
from rayrank.bundle.export import Bundle, export, load, settings_of
from rayrank.bundle.text_scorer import score
from rayrank.core.config import MINILM, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker
from rayrank.serve.config import ServeConfig
from rayrank.serve.model import ServedModel
from rayrank.serve.records import Ask
from rayrank.text.markers import num_ids
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

QUERY = "ghost meaning urban"
PASSAGES = ["Ghost town, an urban area with a fixed boundary", "a zyxwvut", "", "urban " * 60]


def bundle(strm: str, markers: int = 4) -> Bundle:
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    base = BertModel(BertConfig(vocab_size=30_522, initializer_range=0.5, **sizes))
    model = Reranker(Encoder(base, word_table(tokenizer), StrmConfig(form=strm)), 1).eval()
    inputs = InputConfig(length=64, query_length=16, query_type=False, markers=markers)
    model.encoder.add_ids(num_ids(tokenizer, inputs), 2 * markers)
    return Bundle(model, tokenizer, settings_of(model, inputs, QueryTypesConfig(), []))


@pytest.mark.parametrize("strm", ["off", "mask"])
def test_an_exported_model_marks_texts_as_before_and_so_does_the_endpoint(strm: str, tmp_path: Path) -> None:
    made, folder = bundle(strm), tmp_path / "model"
    scores = score(made, [QUERY] * 4, PASSAGES)

    export(str(folder), made)
    served = asyncio.run(ServedModel(ServeConfig(model=str(folder))).rerank(Ask(QUERY, PASSAGES)))

    assert score(load(str(folder)), [QUERY] * 4, PASSAGES).tolist() == scores.tolist()
    assert served.logits == pytest.approx(scores.tolist(), abs=1e-4)
    assert served.cut == [3]
    # Of the first input 16 pieces and special tokens and 8 markers; the last fills the length of 64.
    assert served.num_tokens == (16 + 8) + 12 + 6 + 64


def test_other_libraries_cannot_open_it_as_if_it_needed_no_markers(tmp_path: Path) -> None:
    export(str(tmp_path / "marked"), bundle("off"))
    export(str(tmp_path / "plain"), bundle("off", markers=0))

    kinds = [json.loads((tmp_path / name / "config.json").read_text())["model_type"] for name in ("marked", "plain")]

    assert kinds == ["rayrank", "bert"]


@pytest.mark.parametrize("strm", ["off", "mask"])
def test_an_explanation_shows_markers_and_removes_words_with_theirs(strm: str) -> None:
    made = bundle(strm)

    found = explain(made, QUERY, PASSAGES[0], None)

    pieces = [piece["text"] for piece in found["pieces"]]
    assert pieces[:8] == "[CLS] [e1] ghost [/e1] meaning [e3] urban [/e3]".split()
    assert found["score"] == pytest.approx(score(made, [QUERY], PASSAGES[:1])[0], abs=1e-5)
    words = [word["text"] for word in found["words"]]
    changes = {words[each["word"]]: each["change"] for each in found["removed"][:3]}
    assert list(changes) == ["ghost", "meaning", "urban"]
    # Removed from the query alone: the passage's "Ghost" loses its markers, and `urban` becomes the second term.
    without = score(made, ["meaning urban"], PASSAGES[:1])[0]
    assert changes["ghost"] == pytest.approx(without - found["score"], abs=1e-4)
    (boundary,) = [each["change"] for each in found["removed"] if words[each["word"]] == "boundary"]
    without = score(made, [QUERY], ["Ghost town, an urban area with a fixed"])[0]
    assert boundary == pytest.approx(without - found["score"], abs=1e-4)


def test_a_cut_passage_is_explained_with_the_score_of_the_endpoint() -> None:
    # The input ends within zyxwvut, so the whole word is marked in the query.
    made, query, passage = bundle("mask"), "zyxwvut", "the " * 52 + "zyxwvut"

    found = explain(made, query, passage, None)

    assert found["cut"]
    assert found["pieces"][1]["text"] == "[e1]"
    assert found["score"] == pytest.approx(score(made, [query], [passage])[0], abs=1e-5)
