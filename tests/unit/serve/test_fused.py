"""An endpoint fuses the model's scores with features of the request as the run of kind fuse did in training."""

import argparse
import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import requests
import torch
import yaml
from transformers import BertConfig, BertModel, BertTokenizer

from jobs import promote
from rayrank.bundle.dev_sample import JudgedDocument, JudgedQuery
from rayrank.bundle.export import Bundle, export, load, settings_of
from rayrank.bundle.golden import GoldenPair, check_fusion
from rayrank.bundle.text_scorer import score
from rayrank.core.artifacts import Artifact
from rayrank.core.config import InputConfig, PipelineConfig, QueryTypesConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.measure.metrics import Measure
from rayrank.models.encoder import Encoder
from rayrank.models.reranker import Reranker
from rayrank.scores.fusion import Feature, Fusion
from rayrank.serve import query_ranker
from rayrank.serve.config import ServeConfig
from rayrank.serve.live_endpoint import Endpoint, Scores
from rayrank.serve.model import ServedModel
from rayrank.serve.order import rank
from rayrank.serve.promotion import new_scores, not_fused, served_scores
from rayrank.serve.records import Ask, Hit
from rayrank.serve.replays import Replay
from rayrank.stages.export_checks import fusion_with
from rayrank.stages.golden_fusion import with_fused_scores
from rayrank.stages.make import make
from rayrank.text.pieces import load_tokenizer
from rayrank.text.words import word_table
from tests.unit.runs.first_stages import finished
from tests.unit.runs.test_fuse_run import DEPTH, QUERIES, configured, made_inputs
from tests.unit.serve_api.conftest import served

VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] text of passage dev 0 1 2 3 4 5 6 7 8 9 p".split()
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def made_model(folder: Path) -> Bundle:
    """A small model with random weights."""
    BertTokenizer(vocab={piece: row for row, piece in enumerate(VOCABULARY)}).save_pretrained(str(folder))
    tokenizer = load_tokenizer(str(folder))
    torch.manual_seed(0)
    shape = BertConfig(vocab_size=len(VOCABULARY), max_position_embeddings=64, initializer_range=0.5, **SIZES)
    model = Reranker(Encoder(BertModel(shape), word_table(tokenizer), StrmConfig(form="off")), 1).eval()
    settings = settings_of(model, InputConfig(length=48, query_length=16, query_type=False), QueryTypesConfig(), [])
    return Bundle(model, tokenizer, settings)


def learned(form: str, root: Path, config: PipelineConfig, bundle: Bundle) -> Bundle:
    """What an export adds after a run of kind fuse has learned from the model's scores, BM25 and a field."""
    store = made_inputs(root / "storage", config, root / "data")
    ids, texts = [], []
    for split, queries in QUERIES.items():
        rows = store.require("run:bm25", config).read_table(f"{split}/part-0.parquet").to_pylist()
        pairs = [(row["query_id"], row["passage_id"]) for row in rows]
        scores = score(bundle, [" ".join(q) for q, _ in pairs], [" ".join(f"passage {p}") for _, p in pairs]).tolist()
        found: dict[str, dict[str, float]] = {query: {} for query in queries}
        for (query, passage), each in zip(pairs, scores, strict=True):
            found[query][passage] = each
        finished(store, config, "run:drbert", {f"{split}/part-0": found})
        if split == "dev":
            ids = pairs[: 3 * DEPTH]
            texts = [
                GoldenPair(query=" ".join(q), passage=" ".join(f"passage {p}"), score=each)
                for (q, p), each in zip(ids, scores, strict=False)
            ]
    make("passage_fields", config, store)
    make("fused", config, store)
    fusion = fusion_with("drbert", config, store)
    assert fusion is not None
    assert (fusion.form, fusion.model, fusion.first_stage) == (form, "drbert", "bm25")
    table = pa.table([[q for q, _ in ids], [p for _, p in ids]], names=["query_id", "passage_id"])
    return replace(bundle, fusion=fusion, golden=with_fused_scores(texts, table, fusion, config, store))


@pytest.fixture(scope="module", params=["linear", "lambdarank"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "lambdarank":
        pytest.importorskip("lightgbm", reason="an optional package")
    root = tmp_path_factory.mktemp(request.param)
    settings = (f"runs.fused.form={request.param}", "runs.fused.of=[drbert, bm25]", f"dataset.source=beir:{root}/data")
    export(str(root / "model"), learned(request.param, root, configured(*settings), made_model(root / "words")))
    return root / "model"


class Served(ServedModel):
    """The model as the HTTP routes see it when it runs in their process."""

    name = "tiny"

    async def search(self, query: str, depth: int) -> list[Hit]:
        return [Hit(f"{number}", f"passage {number}", 4.0 - number) for number in (1, 2, 3)]


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    config = ServeConfig.model_validate({"name": "tiny", "model": str(folder)})
    model = Served(config)
    yield from served({"tiny": model}, config)  # type: ignore[dict-item]
    asyncio.run(model.close())


def of_query(pairs: tuple[GoldenPair, ...], number: int) -> list[GoldenPair]:
    return list(pairs[number * DEPTH : (number + 1) * DEPTH])


def post(url: str, pairs: list[GoldenPair], **more: Any) -> dict[str, Any]:
    documents = [{"text": pair.passage, "fields": {**pair.features, "colour": "red"}} for pair in pairs]
    body = {"query": pairs[0].query, "documents": documents, "raw_scores": True, **more}
    answer = requests.post(f"{url}/v1/rerank", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_ranked_file_of_queries_comes_with_what_the_fusion_misses(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_ranker, "RunSearch", lambda search: lambda text, depth: [Hit("1", "passage 1", 4.0)])
    artifact = Artifact(str(tmp_path), "ranked", "key")
    ranker = query_ranker.QueryRanker(artifact, {"name": "tiny", "model": str(folder)}, 1)

    facts = ranker.make({"name": "part.parquet", "queries": [("a", "text of dev")]})

    (warning,) = facts["warnings"]
    assert warning.startswith("fusion: no document has fields.recency, so")


def test_the_endpoint_reproduces_the_fused_scores_of_golden_pairs(folder: Path, url: str) -> None:
    golden = load(str(folder)).golden
    assert any("recency" not in pair.features for pair in golden[: 3 * DEPTH])
    for number in range(3):
        pairs = of_query(golden, number)
        answer = post(url, pairs)
        found = {each["index"]: each["fused_score"] for each in answer["results"]}
        assert [found[place] for place in range(DEPTH)] == pytest.approx([pair.fused for pair in pairs], abs=1e-4)
        shown = [each["fused_score"] for each in answer["results"]]
        assert shown == sorted(shown, reverse=True)
        logits = {each["index"]: each["relevance_score"] for each in answer["results"]}
        assert [logits[place] for place in range(DEPTH)] == pytest.approx([pair.score for pair in pairs], abs=1e-4)
        assert answer["meta"]["ranked_by"] == "fused_score"
        assert "warnings" not in answer["meta"]
    # BM25's scores may come as those of the first stage.
    plain = [pair.model_copy(update={"features": {"recency": pair.features.get("recency", 0.0)}}) for pair in pairs]
    with_scores = post(url, plain, first_stage_scores=[pair.features["bm25"] for pair in pairs])
    assert with_scores["meta"]["ranked_by"] == "fused_score"


def test_without_the_features_documents_are_ranked_as_without_a_fusion_and_a_warning_says_so(
    folder: Path, url: str
) -> None:
    pairs = of_query(load(str(folder)).golden, 0)
    answer = post(url, [pair.model_copy(update={"features": {}}) for pair in pairs])

    shown = [each["relevance_score"] for each in answer["results"]]
    assert shown == sorted(shown, reverse=True)
    assert not any("fused_score" in each for each in answer["results"])
    assert "ranked_by" not in answer["meta"]
    assert answer["meta"]["warnings"] == [
        "fusion: no document has bm25 (fields.bm25 or first_stage_scores), fields.recency, so documents "
        "are ranked without the model's fusion."
    ]
    info = requests.get(f"{url}/info", timeout=60).json()
    assert list(info["fusion"]["features"]) == ["drbert", "bm25", "recency"]


def test_a_machine_that_fuses_otherwise_than_training_neither_serves_nor_promotes(folder: Path, tmp_path: Path) -> None:
    bundle = load(str(folder))
    assert bundle.fusion is not None
    check_fusion(bundle.golden, bundle.fusion)
    fields = tuple(
        each.model_copy(update={"points": ((0.0, 0.9), (9e9, 0.1))}) if each.kind == "field" else each
        for each in bundle.fusion.features
    )
    with pytest.raises(ConfigError, match=r"fusion\.json gives other scores here than at export, by up to"):
        check_fusion(bundle.golden, bundle.fusion.model_copy(update={"features": fields}))

    other, file = str(tmp_path / "other"), tmp_path / "serve.yaml"
    export(other, replace(bundle, fusion=bundle.fusion.model_copy(update={"features": fields})))
    for changes, options in (
        ({}, {"model": other, "back": False}),
        ({"previous": other}, {"model": None, "back": True}),
    ):
        file.write_text(yaml.safe_dump({"applications": [{"args": {"model": str(folder), **changes}}]}))
        arguments = argparse.Namespace(to=str(file), replace="", endpoint=None, **options)
        with pytest.raises(ConfigError, match=r"fusion\.json gives other scores here than at export, by up to"):
            promote.run(arguments, PipelineConfig())


@pytest.mark.parametrize(("measure", "words"), [(Measure("nDCG@5"), "nDCG@5"), (Measure(), "MRR@10")])
def test_a_promotion_compares_by_the_measure_that_selected_the_new_model(
    measure: Measure, words: str, tmp_path: Path
) -> None:
    bundle = made_model(tmp_path)
    texts = tuple(JudgedDocument(text=f"passage {number}") for number in range(3))
    query = JudgedQuery(query="text", documents=texts, relevance=(1, 0, 2), first_stage_scores=(0.0, 0.0, 0.0))
    chosen = {"metric": measure.name, "relevant_from": measure.relevant_from}
    bundle = replace(bundle, dev=(query,) * 30, settings=bundle.settings.model_copy(update=chosen))

    class Live:
        def scores(self, replay: Replay) -> Scores:
            return Scores([0.0, 1.0, 2.0])

        def first_stage_weight(self) -> float:
            return 0.0

        def has_fusion(self) -> bool:
            return False

    arguments = argparse.Namespace(queries=None, judgments=None, force=True, model="new")
    assert f"; {words} " in promote._compared(arguments, bundle, Live(), PipelineConfig())


def test_a_promotion_compares_the_scores_that_endpoints_rank_by(tmp_path: Path) -> None:
    export(str(tmp_path / "model"), replace(made_model(tmp_path / "words"), fusion=FUSION))
    config = ServeConfig.model_validate({"name": "tiny", "model": str(tmp_path / "model")})
    passages = [f"passage {number}" for number in (1, 2, 3)]
    first, fields = [3.0, 1.0, 2.0], [{"price": 0.0}, {}, {"price": 10.0}]
    replays = [
        Replay("dev 1", passages, first_stage_scores=first, fields=fields),
        Replay("dev 2", passages, first_stage_scores=first),
    ]
    model = Served(config)
    serving = served({"tiny": model}, config)  # type: ignore[dict-item]
    endpoint = Endpoint(next(serving))
    live, new = [endpoint.scores(replay) for replay in replays], new_scores(load(config.model), replays)
    fuses = endpoint.has_fusion()
    next(serving, None)
    asyncio.run(model.close())

    assert fuses
    assert live[0].fused == pytest.approx(new[0].fused, abs=1e-4)
    assert live[1].logits == pytest.approx(new[1].logits, abs=1e-4)
    assert (live[1].fused, new[1].fused) == (None, None)
    # The price of the third passage outweighs BM25, which prefers the first.
    assert new[0].fused is not None
    assert new[0].fused[2] > new[0].fused[0]
    assert served_scores(replays, new, 0.0) == [new[0].fused, new[1].logits]
    assert not_fused("live", live) == ["the live model's fusion was not compared on 1 of 2 queries: they lack features"]
    assert not_fused("new", new[:1]) == []


@pytest.mark.parametrize("reads_a_field", [True, False])
def test_search_fuses_if_the_fusion_reads_no_field_and_warns_if_it_does(reads_a_field: bool, tmp_path: Path) -> None:
    without = {"features": FUSION.features[:2], "weights": FUSION.weights[:2]}
    fusion = FUSION if reads_a_field else FUSION.model_copy(update=without)
    export(str(tmp_path / "model"), replace(made_model(tmp_path / "words"), fusion=fusion))
    config = ServeConfig.model_validate({"name": "tiny", "model": str(tmp_path / "model"), "search": {"run": "there"}})
    model = Served(config)
    serving = served({"tiny": model}, config)  # type: ignore[dict-item]
    answer = requests.post(f"{next(serving)}/search", json={"query": "dev 1"}, timeout=60).json()
    next(serving, None)
    asyncio.run(model.close())

    assert ["fused_score" in each for each in answer["results"]] == [not reads_a_field] * 3
    sentence = "fusion: no document has fields.price, so documents are ranked without the model's fusion."
    assert answer.get("warnings") == ([sentence] if reads_a_field else None)


FUSION = Fusion(
    form="linear",
    normalize="min-max",
    features=(
        Feature(name="model", kind="run"),
        Feature(name="bm25", kind="run"),
        Feature(name="price", kind="field", points=((0.0, 0.0), (10.0, 1.0))),
    ),
    weights=(1.0, 2.0, 4.0),
    model="model",
    first_stage="bm25",
)


def asked(**settings: Any) -> Ask:
    return Ask("q", ["a", "b", "c"], received_at=time.time(), **settings)


def test_a_missing_value_counts_as_in_training_and_an_unscored_passage_is_left_out() -> None:
    fields = [{"price": 10.0, "bm25": 3.0}, {"price": 0.0}, {"bm25": 1.0}]
    found = rank(asked(fields=fields), [2.0, 0.0, 1.0], 0.0, FUSION)
    # Without a score of the run 0, and without a price the median.
    assert found.fused == pytest.approx({0: 1 + 2 + 4, 1: 0 + 0 + 0, 2: 0.5 + 0 + 2})
    assert found.order == [0, 2, 1]
    late = rank(asked(fields=fields), [None, 0.0, 1.0], 0.0, FUSION)
    assert late.order == [2, 1]
    assert late.fused == pytest.approx({1: 0, 2: 1 + 2 + 2})


def test_a_weight_in_the_request_or_a_folder_of_an_earlier_export_ranks_as_without_a_fusion() -> None:
    fields = [{"price": 10.0}, {"price": 0.0}, {"price": 5.0}]
    ask = asked(fields=fields, first_stage_scores=[0.0, 1.0, 0.5], first_stage_weight=1.0)
    assert rank(ask, [2.0, 0.0, 1.0], 1.0, FUSION).order == [1, 2, 0]
    assert rank(ask, [2.0, 0.0, 1.0], 1.0, FUSION).warnings == []
    same = replace(ask, first_stage_weight=None)
    assert rank(same, [2.0, 0.0, 1.0], 0.0, FUSION).order == [0, 2, 1]
    assert rank(same, [2.0, 0.0, 1.0], 0.0, FUSION.model_copy(update={"weights": (1.0, 9.0, 0.0)})).order == [1, 2, 0]
    earlier = rank(same, [2.0, 0.0, 1.0], 0.0, FUSION.model_copy(update={"model": ""}))
    assert (earlier.order, earlier.fused, earlier.warnings) == ([0, 2, 1], {}, [])
    assert np.isfinite(list(rank(same, [2.0, 0.0, 1.0], 0.0, FUSION).fused.values())).all()
