"""Requests and answers of each API, as the clients of the original servers expect them."""

import asyncio
import json
import re
from typing import Any

import pytest
import requests

from rayrank.serve.config import ServeConfig
from rayrank.serve.records import Answer, Ask, Overloaded

QUERY = "how do whales breathe"
TEXTS = ["bread needs yeast", "whales breathe air", "whales sing"]


def post(url: str, body: Any) -> Any:
    answer = requests.post(url, json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_tei_gets_an_array_best_first_with_its_headers(api: str) -> None:
    answer = requests.post(f"{api}/rerank", json={"query": QUERY, "texts": TEXTS, "return_text": True}, timeout=10)
    assert answer.json() == [
        {"index": 1, "score": 0.2, "text": TEXTS[1]},
        {"index": 2, "score": 0.1, "text": TEXTS[2]},
        {"index": 0, "score": 0.0, "text": TEXTS[0]},
    ]
    assert answer.headers["x-compute-tokens"] == "21"
    assert answer.headers["x-compute-characters"] == str(len(QUERY) + sum(map(len, TEXTS)))
    times = ("tokenization", "queue", "inference")
    assert [answer.headers[f"x-{name}-time"] for name in times] == ["1", "2", "3"]
    assert answer.headers["x-total-time"].isdecimal()


def test_rerank_with_documents_returns_them_as_texts_for_infinitys_clients(api: str) -> None:
    body = {"query": QUERY, "documents": [TEXTS[0], {"id": "w", "text": TEXTS[1]}], "top_n": 1}
    (result,) = post(f"{api}/rerank", {**body, "return_documents": True})["results"]
    assert result == {"index": 1, "relevance_score": 0.2, "id": "w", "document": TEXTS[1]}


@pytest.mark.parametrize("version", ["1", "2"])
def test_rerank_has_the_fields_of_cohere_jina_vllm_and_infinity(api: str, version: str) -> None:
    answer = post(f"{api}/v{version}/rerank", {"query": QUERY, "documents": TEXTS, "model": "whatever", "user": "me"})
    assert [result["index"] for result in answer["results"]] == [1, 2, 0]
    assert answer["model"] == "words"
    assert answer["usage"] == {"prompt_tokens": 21, "total_tokens": 21}
    assert answer["meta"]["api_version"] == {"version": version}
    assert answer["meta"]["billed_units"] == {"search_units": 1}
    assert answer["id"]
    assert answer["object"] == "rerank"
    assert answer["partial"] is False


def test_numbers_and_dates_among_the_fields_of_a_document_reach_the_model(api: str, scorer: Any) -> None:
    fields = [
        {"price": 3, "age": None, "name": "x", "on": "1970-01-03", "huge": 10**400},
        {"price": 1.5},
        ["not", "fields"],
    ]
    documents = [{"text": text, "fields": each} for text, each in zip(TEXTS, fields, strict=True)]
    for route in ("/v1/rerank", "/v2/rerank", "/rerank"):
        post(f"{api}{route}", {"query": QUERY, "documents": documents})
        assert scorer.asks[-1].fields == [{"price": 3.0, "on": 2.0}, {"price": 1.5}, {}]
    post(f"{api}/v1/rerank", {"query": QUERY, "documents": TEXTS})
    assert scorer.asks[-1].fields == [{}, {}, {}]


def test_documents_with_fields_are_returned_with_their_ids(api: str) -> None:
    documents = [{"id": 7, "text": TEXTS[0]}, {"id": "w", "text": TEXTS[1], "year": None}, TEXTS[2]]
    answer = post(f"{api}/v2/rerank", {"query": QUERY, "documents": documents, "return_documents": True})
    assert [(result.get("id"), result["document"]) for result in answer["results"]] == [
        ("w", documents[1]),
        (None, {"text": TEXTS[2]}),
        (7, documents[0]),
    ]


@pytest.mark.parametrize(
    ("route", "asked", "shown"),
    [
        ("v1/rerank", {}, False), ("v1/rerank", {"return_documents": None}, False), ("rerank", {}, False),
        ("v1/rerank", {"return_documents": True}, True), ("v2/rerank", {}, False),
        ("v2/rerank", {"return_documents": True}, True),
    ],
)  # fmt: skip
def test_documents_are_returned_only_if_the_client_asks_for_them(
    api: str, route: str, asked: dict[str, Any], shown: bool
) -> None:
    answer = post(f"{api}/{route}", {"query": QUERY, "documents": TEXTS, **asked})
    found = [result.get("document") for result in answer["results"]]
    assert found == ([{"text": TEXTS[place]} for place in (1, 2, 0)] if shown else [None] * 3)


def test_a_repeated_rank_field_is_read_once(api: str, scorer: Any) -> None:
    documents = [{"title": "whales", "text": "sing"}]
    post(f"{api}/v1/rerank", {"query": QUERY, "documents": documents, "rank_fields": ["text", "title"] * 25})
    assert scorer.asks[-1].passages == ["sing\nwhales"]


def test_rank_fields_are_the_fields_that_are_read(api: str, scorer: Any) -> None:
    documents = [{"title": "whales", "year": 1851, "text": "no"}, {"title": "bread", "copy": "left"}]
    post(f"{api}/v1/rerank", {"query": QUERY, "documents": documents, "rank_fields": ["title", "year", "copy"]})
    assert scorer.asks[-1].passages == ["whales\n1851", "bread\nleft"]


@pytest.mark.parametrize("top_n", [None, 0, 5, 3.0])
def test_top_n_defaults_to_all_documents(api: str, top_n: int | None) -> None:
    assert len(post(f"{api}/v1/rerank", {"query": QUERY, "documents": TEXTS, "top_n": top_n})["results"]) == 3


@pytest.mark.parametrize("field", [{"raw_scores": True}, {"use_activation": False}])
def test_raw_scores_are_logits(api: str, field: dict[str, bool]) -> None:
    answer = post(f"{api}/v1/rerank", {"query": QUERY, "documents": TEXTS, **field})
    assert [result["relevance_score"] for result in answer["results"]] == [1.0, 0.0, -1.0]
    for route in ("score", "v1/score"):
        data = post(f"{api}/{route}", {"text_1": QUERY, "text_2": TEXTS, **field})["data"]
        assert [each["score"] for each in data] == [-1.0, 1.0, 0.0]


def test_our_own_fields_reach_the_model(api: str, scorer: Any) -> None:
    own = {"query_type": "ENTITY", "first_stage_scores": [3, 2, 1.5], "first_stage_weight": 0.3, "deadline_ms": 50}
    own |= {"min_relevance": 0.5, "min_precision": 0.9}
    for route, name in (("rerank", "texts"), ("v1/rerank", "documents"), ("v2/rerank", "documents")):
        post(f"{api}/{route}", {"query": QUERY, name: TEXTS, **own})
        ask = scorer.asks[-1]
        assert {key: getattr(ask, key) for key in own} == own


def test_without_a_weight_the_model_chooses_it(api: str, scorer: Any) -> None:
    for route, name in (("rerank", "texts"), ("v1/rerank", "documents"), ("v2/rerank", "documents")):
        post(f"{api}/{route}", {"query": QUERY, name: TEXTS, "first_stage_scores": [3, 2, 1.5]})
        assert scorer.asks[-1].first_stage_weight is None


def test_an_answer_that_lacks_scores_at_the_deadline_is_partial(api: str) -> None:
    body = {"query": QUERY, "documents": TEXTS, "deadline_ms": 0.5}
    answer = post(f"{api}/v1/rerank", body)
    assert answer["partial"] is True
    assert [(each["index"], each["relevance_score"]) for each in answer["results"]] == [(1, 0.2)]
    assert post(f"{api}/score", {"queries": QUERY, **body, "query": None})["data"] == [
        {"index": 1, "object": "score", "score": 0.2}
    ]
    tei = requests.post(f"{api}/rerank", json={"query": QUERY, "texts": TEXTS, "deadline_ms": 0.5}, timeout=10)
    assert tei.headers["x-partial"] == "true"


def test_truncated_documents_are_listed(api: str) -> None:
    long = [TEXTS[0], "whales " * 100, *["x" * 201] * 25]
    warnings = post(f"{api}/v1/rerank", {"query": QUERY, "documents": long})["meta"]["warnings"]
    assert warnings[0].startswith("documents 1, 2, 3, ")
    assert " 20 and 6 more:" in warnings[0]
    tei = requests.post(f"{api}/rerank", json={"query": QUERY, "texts": long[:3]}, timeout=10)
    assert tei.headers["x-cut-texts"] == "1,2"
    assert "meta" not in post(f"{api}/score", {"queries": QUERY, "documents": TEXTS})


def test_a_cut_query_and_an_unknown_query_type_are_in_the_warnings_of_every_answer(start: Any) -> None:
    url = start(ServeConfig.model_validate({"name": "old", "search": {"run": "there", "depth": 3}}))
    long, own = "whales " * 50, {"query_type": "zzz"}
    cut, unknown = "longer than what the model reads", "query_type: zzz\nis unknown."

    for route in ("v1/rerank", "v2/rerank", "rerank"):
        warnings = post(f"{url}/{route}", {"query": long, "documents": TEXTS, **own})["meta"]["warnings"]
        assert warnings == [f"query: {cut}; its end was not read.", unknown]
    assert post(f"{url}/search", {"query": long, **own})["warnings"] == warnings
    pairs = {"text_1": ["whales", long], "text_2": TEXTS[:2], **own}
    assert post(f"{url}/score", pairs)["warnings"] == [f"text_1 1: {cut}; the ends were not read.", unknown]
    tei = requests.post(f"{url}/rerank", json={"query": long, "texts": TEXTS, **own}, timeout=10)
    assert (tei.headers["x-cut-query"], json.loads(tei.headers["x-warnings"])) == ("true", [unknown])
    assert "warnings" not in post(f"{url}/v1/rerank", {"query": QUERY, "documents": TEXTS})["meta"]


def test_a_long_query_is_refused_if_truncate_is_false(api: str) -> None:
    long = "whales " * 50
    tei = requests.post(f"{api}/rerank", json={"query": long, "texts": TEXTS, "truncate": False}, timeout=10)
    assert (tei.status_code, tei.json()["error"].partition(":")[0]) == (413, "query")
    inputs = {"source_sentence": long, "sentences": TEXTS}
    body = {"inputs": inputs, "parameters": {"truncate": False}}
    similarity = requests.post(f"{api}/similarity", json=body, timeout=10)
    assert similarity.json()["error"].startswith("inputs.source_sentence: longer than the model's maximum input; ")


def test_tei_refuses_long_texts_if_truncate_is_false(api: str) -> None:
    body = {"query": QUERY, "texts": ["x" * 300], "truncate": False}
    answer = requests.post(f"{api}/rerank", json=body, timeout=10)
    assert (answer.status_code, answer.json()["error_type"]) == (413, "Validation")
    assert "texts.0" in answer.json()["error"]


@pytest.mark.parametrize("direction", ["left", "Left", "right", "Right"])
def test_tei_truncates_only_the_end_of_a_text(api: str, direction: str) -> None:
    body = {"query": QUERY, "texts": [*TEXTS, "x" * 300], "truncation_direction": direction}
    answer = requests.post(f"{api}/rerank", json=body, timeout=10)
    if direction.lower() == "right":
        assert (answer.status_code, answer.headers["x-cut-texts"]) == (200, "3")
    else:
        assert answer.status_code == 413
        assert answer.json()["error"].startswith("texts.3: ")
        assert answer.json()["error"].endswith("set truncation_direction to right.")
    assert len(post(f"{api}/rerank", {**body, "texts": TEXTS})) == 3


@pytest.mark.parametrize(("first", "second"), [("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2")])
def test_scores_are_in_the_order_of_the_request(api: str, first: str, second: str) -> None:
    answer = post(f"{api}/score", {first: QUERY, second: TEXTS})
    assert [(each["index"], each["score"]) for each in answer["data"]] == [(0, 0.0), (1, 0.2), (2, 0.1)]


def test_as_many_queries_as_documents_are_scored_pair_by_pair(api: str) -> None:
    long = "yeast " * 40
    answer = post(f"{api}/score", {"queries": [QUERY, "yeast", QUERY], "documents": [TEXTS[1], long, long]})
    assert [each["score"] for each in answer["data"]] == [0.2, 0.1, 0.0]
    assert answer["usage"]["total_tokens"] == 21
    assert answer["warnings"][0].startswith("documents 1, 2:")


def test_a_request_with_many_queries_does_not_fill_the_models_queue(
    api: str, scorer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, num_active = scorer.rerank, 0

    async def crowded(ask: Ask) -> Answer:
        nonlocal num_active
        if num_active >= 40:
            raise Overloaded(1.0)
        num_active += 1
        await asyncio.sleep(0.01)
        num_active -= 1
        found: Answer = await answer(ask)
        return found

    monkeypatch.setattr(scorer, "rerank", crowded)
    queries = [f"{row} whales" for row in range(50)]
    scores = post(f"{api}/score", {"queries": queries, "documents": ["whales sing"] * 50})["data"]
    assert [each["index"] for each in scores] == list(range(50))


def test_models_info_and_health_describe_the_server(api: str) -> None:
    models = requests.get(f"{api}/v1/models", timeout=10).json()
    assert [model["id"] for model in models["data"]] == ["words"]
    info = requests.get(f"{api}/info", timeout=10).json()
    assert (info["model_id"], info["max_input_length"], info["max_client_batch_size"]) == ("words", 256, 50)
    assert info["precision"] == {"num_queries": 3, "levels": []}
    assert info["search"] is False
    for path in ("health", "ready", "docs"):
        assert requests.get(f"{api}/{path}", timeout=10).status_code == 200


def test_explain_returns_the_models_explanation(api: str) -> None:
    body = {"query": QUERY, "document": "whales sing", "query_type": "ENTITY"}
    assert post(f"{api}/explain", body) == {"pieces": ["whales", "sing"], "query_type": "ENTITY"}


def test_search_retrieves_and_reranks(start: Any) -> None:
    url = start(ServeConfig.model_validate({"name": "old", "search": {"run": "there", "depth": 3}}))
    answer = post(f"{url}/search", {"query": QUERY, "top_n": 2})
    assert [(each["id"], each["first_stage_rank"], each["relevance_score"]) for each in answer["results"]] == [
        ("p2", 2, 0.2),
        ("p3", 3, 0.1),
    ]
    nothing = post(f"{url}/search", {"query": "nothing"})
    # A promotion changes the model's name, but not the settings of this ingress.
    assert (nothing["results"], nothing["model"]) == ([], "words")
    assert requests.post(f"{url}/search", json={"query": QUERY, "depth": 4}, timeout=10).status_code == 422
    assert requests.get(f"{url}/info", timeout=10).json()["search"] is True


def test_a_query_that_would_occupy_the_first_stage_for_long_is_refused_in_one_sentence(start: Any) -> None:
    url = start(ServeConfig.model_validate({"name": "old", "search": {"run": "there", "depth": 3}}))
    answer = requests.post(f"{url}/search", json={"query": "x" * 10_001}, timeout=10)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"] == "query has 10001 characters: send at most 10000."
    assert post(f"{url}/search", {"query": "whales " * 1428})["results"]


def test_search_without_a_first_stage_names_the_setting(api: str) -> None:
    answer = requests.post(f"{api}/search", json={"query": QUERY}, timeout=10)
    assert answer.status_code == 404
    assert "search.run" in answer.json()["error"]["message"]


def test_the_page_and_its_files_are_served_at_the_root(api: str) -> None:
    page = requests.get(api, timeout=10)
    assert page.headers["content-type"].startswith("text/html")
    files = re.findall(r'(?:src|href)="([^":]+)"', page.text)
    assert len(files) >= 2
    for file in files:
        assert requests.get(f"{api}/{file}", timeout=10).status_code == 200, file
