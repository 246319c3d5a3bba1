"""A promotion reads long documents as the endpoint does, whatever the model's own settings say."""

import argparse
import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.bundle.dev_sample import JudgedDocument, JudgedQuery
from rayrank.bundle.export import Bundle, export, settings_of
from rayrank.bundle.golden import GoldenPair
from rayrank.bundle.text_scorer import score
from rayrank.core.config import MINILM, InputConfig, PipelineConfig, QueryTypesConfig, StrmConfig
from rayrank.jobs import promote
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker
from rayrank.serve import live_endpoint, targets
from rayrank.serve.config import read
from rayrank.serve.live_endpoint import Scores
from rayrank.serve.model import ServedModel
from rayrank.serve.records import Ask
from rayrank.serve.replays import Replay
from rayrank.serve.targets import LiveModel
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table

QUERY = "where is the old house"
WORDS = "red house on a green hill by the old river where two boats wait for some wind and rain all day".split()
PASSAGES = [" ".join(Random(seed).choices(WORDS, k=40)) for seed in range(8)]
"""Texts of 40 pieces, more than the 13 of a window."""


def made_model(long_passages: str) -> Bundle:
    inputs = InputConfig.model_validate(
        {"length": 24, "query_length": 8, "query_type": False, "long_passages": long_passages, "window_stride": 5}
    )
    tokenizer = load_tokenizer(MINILM)
    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    base = BertModel(BertConfig(vocab_size=30_522, initializer_range=0.5, **sizes))
    model = Reranker(Encoder(base, word_table(tokenizer), StrmConfig(form="off")), 1).eval()
    bundle = Bundle(model, tokenizer, settings_of(model, inputs, QueryTypesConfig(), []))
    scores = score(bundle, [QUERY] * len(PASSAGES), PASSAGES).tolist()
    golden = tuple(GoldenPair(query=QUERY, passage=text, score=own) for text, own in zip(PASSAGES, scores, strict=True))
    documents = tuple(JudgedDocument(text=text) for text in PASSAGES)
    judged = JudgedQuery(
        query=QUERY, documents=documents, relevance=(0,) * 7 + (1,), first_stage_scores=(0.0,) * len(PASSAGES)
    )
    return Bundle(model, tokenizer, bundle.settings, golden=golden, dev=(judged,) * 20)


class Served:
    """The endpoint and the target of a promotion: a model in this process, which is the same before and after."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self.model = ServedModel(read({**settings, "model": str(folder)}))
        self.settings = settings
        self.replaced: list[str] = []

    def live(self) -> LiveModel:
        return LiveModel({"model": "/old", "name": "old", **self.settings}, "http://endpoint")

    def replace_model(self, settings: dict[str, Any]) -> str:
        self.replaced.append(settings["model"])
        return "done"

    def scores(self, replay: Replay) -> Scores:
        answer = asyncio.run(self.model.rerank(Ask(replay.query, replay.passages)))
        return Scores([logit for logit in answer.logits if logit is not None])

    def first_stage_weight(self) -> float:
        return 0.0

    def has_fusion(self) -> bool:
        return False

    def is_exact(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("own", "of_endpoint"), [("cut", "windows"), ("windows", "cut"), ("windows", "windows"), ("cut", None)]
)
def test_the_same_weights_rank_equally_and_are_confirmed(
    own: str, of_endpoint: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(str(tmp_path / "new"), made_model(own))
    served = Served(tmp_path / "new", {"long_documents": of_endpoint})
    monkeypatch.setattr(targets, "open_target", lambda *_: served)
    monkeypatch.setattr(live_endpoint, "Endpoint", lambda *_: served)
    options = {"to": "http://dashboard", "replace": "", "back": False, "endpoint": None, "force": False}
    arguments = argparse.Namespace(model=str(tmp_path / "new"), queries=None, judgments=None, **options)

    _, compared, _, confirmed = promote.run(arguments, PipelineConfig())["findings"]

    assert "Kendall's tau 1.000" in compared
    # All golden passages are longer than a window.
    assert f"the endpoint serves it: {len(PASSAGES)} golden pairs" in confirmed
    assert served.replaced == [str(tmp_path / "new")]


def test_a_model_that_the_endpoint_does_not_serve_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(str(tmp_path / "new"), made_model("cut"))
    served = Served(tmp_path / "new", {"long_documents": "windows"})
    found = served.scores
    monkeypatch.setattr(served, "scores", lambda replay: Scores([each + 1 for each in found(replay).logits]))
    monkeypatch.setattr(targets, "open_target", lambda *_: served)
    monkeypatch.setattr(live_endpoint, "Endpoint", lambda *_: served)
    options = {"to": "http://dashboard", "replace": "", "back": False, "endpoint": None, "force": True}
    arguments = argparse.Namespace(model=str(tmp_path / "new"), queries=None, judgments=None, **options)

    with pytest.raises(promote.ConfigError, match=r"scores of golden pairs are off by up to 1, .*; /old was restored"):
        promote.run(arguments, PipelineConfig())
    assert served.replaced == [str(tmp_path / "new"), "/old"]
