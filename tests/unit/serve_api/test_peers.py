"""Routes and fields that clients of a single server need: text-embeddings-inference, Infinity, Jina, Cohere."""

from typing import Any

import pytest
import requests

QUERY = "how do whales breathe"
TEXTS = ["bread needs yeast", "whales breathe air", "whales sing"]


def post(url: str, body: Any) -> Any:
    answer = requests.post(url, json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_predict_scores_a_pair_or_a_list_of_pairs(api: str) -> None:
    pairs = [[QUERY, text] for text in TEXTS]
    assert post(f"{api}/predict", {"inputs": pairs[1]}) == [{"score": 0.2, "label": "LABEL_0"}]
    scores = [[each["score"] for each in one] for one in post(f"{api}/predict", {"inputs": pairs})]
    assert scores == [[0.0], [0.2], [0.1]]
    assert post(f"{api}/predict", {"inputs": pairs[1], "raw_scores": True})[0]["score"] == 1.0


@pytest.mark.parametrize("inputs", ["alone", ["alone"], [["alone"]], [["a", "b", "c"]], [], [["a", "b"], "c"]])
def test_predict_refuses_what_is_not_pairs(api: str, inputs: Any) -> None:
    answer = requests.post(f"{api}/predict", json={"inputs": inputs}, timeout=10)
    assert answer.status_code == 422
    assert answer.json()["error"].endswith("send a list of a query and a passage, or a list of such pairs.")


def test_predict_refuses_long_passages_if_truncate_is_false(api: str) -> None:
    body = {"inputs": [[QUERY, "short"], [QUERY, "x" * 300]], "truncate": False}
    answer = requests.post(f"{api}/predict", json=body, timeout=10)
    assert answer.status_code == 413
    assert answer.json()["error"].startswith("inputs.1.1: ")


def test_tokenize_returns_the_pieces_of_each_text(api: str) -> None:
    (pieces,) = post(f"{api}/tokenize", {"inputs": "whales"})
    assert pieces == [
        {"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None},
        {"id": 7, "text": "whales", "special": False, "start": 0, "stop": 6},
    ]
    assert [len(each) for each in post(f"{api}/tokenize", {"inputs": TEXTS, "add_special_tokens": False})] == [1, 1, 1]


def test_tokenize_limits_the_size_of_its_answer(start: Any) -> None:
    from rayrank.serve.config import ServeConfig

    answer = requests.post(f"{start(ServeConfig(name='words'))}/tokenize", json={"inputs": "x" * 50_001}, timeout=10)
    assert answer.status_code == 413
    assert "at most 50000" in answer.json()["error"]


def test_the_root_compares_sentences_and_ranks(api: str) -> None:
    compared = post(api, {"inputs": {"source_sentence": QUERY, "sentences": TEXTS}})
    assert compared == post(f"{api}/similarity", {"inputs": {"source_sentence": QUERY, "sentences": TEXTS}})
    assert compared == [0.0, 0.2, 0.1]
    assert [each["index"] for each in post(api, {"query": QUERY, "texts": TEXTS})] == [1, 2, 0]
    assert [each["index"] for each in post(api, {"query": QUERY, "documents": TEXTS})["results"]] == [1, 2, 0]


def test_the_root_has_the_error_format_of_the_request(api: str) -> None:
    compared = requests.post(api, json={"inputs": {"source_sentence": QUERY, "sentences": []}}, timeout=10)
    assert (compared.status_code, set(compared.json())) == (400, {"error", "error_type"})
    ranked = requests.post(api, json={"query": QUERY, "documents": []}, timeout=10)
    assert ranked.json()["detail"] == ranked.json()["error"]["message"]


def test_documents_are_read_up_to_max_tokens_per_doc(api: str, scorer: Any) -> None:
    for route in ("v1/rerank", "v2/rerank", "rerank"):
        post(f"{api}/{route}", {"query": QUERY, "documents": TEXTS, "max_tokens_per_doc": 2.0})
        assert scorer.asks[-1].max_tokens == 2


def test_info_has_the_fields_of_text_embeddings_inference(api: str) -> None:
    info = requests.get(f"{api}/info", timeout=10).json()
    assert info["model_type"] == {"reranker": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}}
    assert info["model_dtype"] == "float32"
    for field in ("max_concurrent_requests", "max_batch_tokens", "tokenization_workers"):
        assert isinstance(info[field], int)


def test_infinitys_client_finds_the_model(api: str) -> None:
    (model,) = requests.get(f"{api}/models", timeout=10).json()["data"]
    assert (model["id"], model["backend"], model["capabilities"], model["stats"]) == ("words", "torch", ["rerank"], {})


def test_a_model_is_described_by_its_name(api: str) -> None:
    assert requests.get(f"{api}/v1/models/words", timeout=10).json()["id"] == "words"
    unknown = requests.get(f"{api}/v1/models/BAAI/bge-reranker", timeout=10)
    assert unknown.status_code == 404
    assert unknown.json()["error"]["message"] == "There is no model BAAI/bge-reranker: this server has words."


@pytest.mark.parametrize("path", ["", "/health", "/ready", "/info", "/v1/models", "/docs", "/openapi.json"])
def test_head_answers_as_get_without_a_body(api: str, path: str) -> None:
    answer, whole = (method(api + path, timeout=10) for method in (requests.head, requests.get))
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == whole.headers["content-type"]


def test_options_lists_the_methods_of_a_path(api: str) -> None:
    for path, methods in (("/v2/rerank", "POST"), ("/health", "GET, HEAD"), ("/", "GET, HEAD, POST")):
        answer = requests.options(api + path, timeout=10)
        assert (answer.status_code, answer.content) == (204, b"")
        assert answer.headers["allow"] == f"{methods}, OPTIONS"
    assert requests.options(f"{api}/nowhere", timeout=10).status_code == 404


def test_pairs_whose_ends_were_not_read_are_named_in_headers(api: str) -> None:
    long = "x" * 300
    body = {"inputs": [["a", "b"], ["a", long], [long, "b"]]}
    answer = requests.post(f"{api}/predict", json=body, timeout=10)
    assert (answer.headers["x-cut-texts"], answer.headers["x-cut-query"]) == ("1", "true")
    assert "x-cut-texts" not in requests.post(f"{api}/predict", json={"inputs": ["a", "b"]}, timeout=10).headers
