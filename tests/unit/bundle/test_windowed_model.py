"""A long document has the score of its best window, in Python and in the endpoint, which says where that window is."""

import asyncio
import threading
import time
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.bundle.text_scorer import score
from rayrank.core.config import MINILM, InputConfig, QueryTypesConfig, StrmConfig
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker
from rayrank.serve.config import read
from rayrank.serve.long_documents import LongDocuments
from rayrank.serve.model import ServedModel
from rayrank.serve.records import Answer, Ask
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

QUERY, LENGTH, STRIDE = "where is the old house", 13, 5
WORDS = (
    "red house on a green hill by the old river where two boats wait for some wind and rain all day long ago".split()
)
LONG, ENDLESS, SHORT = " ".join(WORDS), " ".join(WORDS * 9), "a green house"
INPUTS = InputConfig(
    length=24, query_length=8, query_type=False, long_passages="windows", window_stride=STRIDE, max_windows=6
)


def bundle(inputs: InputConfig = INPUTS) -> Bundle:
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    base = BertModel(BertConfig(vocab_size=30_522, initializer_range=0.5, **sizes))
    model = Reranker(Encoder(base, word_table(tokenizer), StrmConfig(form="off")), 1).eval()
    return Bundle(model, tokenizer, settings_of(model, inputs, QueryTypesConfig(), []))


def expected() -> list[float]:
    """The scores of the long document's windows; every word is one piece."""
    assert len(load_tokenizer(MINILM)(LONG, add_special_tokens=False).input_ids) == len(WORDS) == 23
    windows = [" ".join(WORDS[start : start + LENGTH]) for start in (0, 5, 10)]
    return score(bundle(INPUTS.model_copy(update={"long_passages": "cut"})), [QUERY] * 3, windows).tolist()


def ask(
    folder: Path, *passages: str, deadline_ms: float | None = None, num_windows: int = 9, **settings: str
) -> Answer:  # fmt: skip
    model = ServedModel(read({"model": str(folder), **settings}))
    return asyncio.run(model.rerank(Ask(QUERY, passages, deadline_ms=deadline_ms, num_windows=num_windows)))


def test_a_long_document_has_the_score_of_its_best_window() -> None:
    long, short = score(bundle(), [QUERY] * 2, [LONG, SHORT])

    assert long == pytest.approx(max(expected()), abs=1e-5)
    cut = bundle(INPUTS.model_copy(update={"long_passages": "cut"}))
    assert short == pytest.approx(score(cut, [QUERY], [SHORT])[0], abs=1e-5)


@pytest.mark.parametrize("deadline_ms", [None, 60_000.0])
def test_the_endpoint_says_which_window_won(tmp_path: Path, deadline_ms: float | None) -> None:
    export(str(tmp_path / "model"), bundle())

    answer = ask(tmp_path / "model", SHORT, LONG, ENDLESS, deadline_ms=deadline_ms)

    start, end = answer.windows[1]
    best = [5 * place for place, value in enumerate(expected()) if value == max(expected())]
    assert LONG[start:end].split() == WORDS[best[0] : best[0] + LENGTH]
    assert answer.logits[1] == pytest.approx(max(expected()), abs=1e-4)
    assert set(answer.windows) == {1, 2}
    assert answer.cut == [2]  # six windows reach 38 pieces
    assert not answer.partial


@pytest.mark.parametrize("num_windows", [0, 1])
def test_windows_are_located_for_no_more_of_the_best_documents_than_the_request_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_windows: int
) -> None:
    export(str(tmp_path / "model"), bundle())
    located: list[str] = []
    spans = LongDocuments.spans
    monkeypatch.setattr(LongDocuments, "spans", lambda self, texts, *more: (
        located.extend(texts) or spans(self, texts, *more)
    ))  # fmt: skip

    answer = ask(tmp_path / "model", LONG, ENDLESS, num_windows=num_windows)

    best = answer.order[:num_windows]
    assert located == [(LONG, ENDLESS)[place] for place in best]
    assert list(answer.windows) == best


def test_windows_that_are_not_located_before_the_deadline_are_left_out_and_the_scores_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(str(tmp_path / "model"), bundle())
    may_go = threading.Event()
    monkeypatch.setattr(LongDocuments, "spans", lambda *given: may_go.wait(5))
    began = time.monotonic()

    answer = ask(tmp_path / "model", LONG, SHORT, deadline_ms=2_000)
    may_go.set()

    assert answer.windows == {}
    assert not answer.partial
    assert sorted(answer.order) == [0, 1]
    # Loading the model takes a part of this time.
    assert time.monotonic() - began < 4.5


def test_the_setting_of_the_endpoint_wins_over_that_of_training(tmp_path: Path) -> None:
    export(str(tmp_path / "windows"), bundle())
    export(str(tmp_path / "cut"), bundle(INPUTS.model_copy(update={"long_passages": "cut"})))

    cut, windows = ask(tmp_path / "windows", LONG, long_documents="cut"), ask(
        tmp_path / "cut", LONG, long_documents="windows"
    )  # fmt: skip

    assert (cut.cut, cut.windows) == ([0], {})
    assert windows.cut == []
    assert windows.logits[0] == pytest.approx(max(expected()), abs=1e-4)


def test_the_best_window_is_explained(tmp_path: Path) -> None:
    export(str(tmp_path / "model"), bundle())
    model = ServedModel(read({"model": str(tmp_path / "model")}))

    found = asyncio.run(model.explain(QUERY, LONG, None))

    assert found["score"] == pytest.approx(max(expected()), abs=1e-4)
    words = [LONG[piece["start"] : piece["end"]] for piece in found["pieces"] if piece["segment"] == "document"]
    assert " ".join(words) == LONG[found["window"]["start"] : found["window"]["end"]]
