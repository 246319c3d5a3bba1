"""Client libraries of other servers work with only their URL changed."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from ray import serve

from rayrank.serve.app import build

QUERY = "how do whales breathe"
TEXTS = [
    "Bread needs yeast, flour and water.",
    "Whales come up for air and breathe through a blowhole.",
    "The stock market fell on Monday.",
    "Whales are mammals.",
]


@pytest.fixture(scope="module")
def expected(server: str) -> list[tuple[int, float]]:
    """Positions and probabilities from POST /score, best first."""
    data = requests.post(f"{server}/score", json={"text_1": QUERY, "text_2": TEXTS}, timeout=60).json()["data"]
    scores = [(each["index"], each["score"]) for each in data]
    assert len({score for _, score in scores}) == len(TEXTS)
    return sorted(scores, key=lambda each: -each[1])


def same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> bool:
    places, scores = zip(*found, strict=True)
    return places == tuple(place for place, _ in expected) and scores == pytest.approx([score for _, score in expected])


def test_cohere_v1(server: str, expected: list[tuple[int, float]]) -> None:
    cohere = pytest.importorskip("cohere")
    client = cohere.Client("a key", base_url=server)
    answer = client.rerank(query=QUERY, documents=[{"text": text} for text in TEXTS], return_documents=True)
    assert same([(each.index, each.relevance_score) for each in answer.results], expected)
    assert answer.results[0].document.text == TEXTS[expected[0][0]]
    assert answer.meta.api_version.version == "1"


def test_cohere_v2(server: str, expected: list[tuple[int, float]]) -> None:
    cohere = pytest.importorskip("cohere")
    client = cohere.ClientV2("a key", base_url=server)
    answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=TEXTS, top_n=2)
    assert same([(each.index, each.relevance_score) for each in answer.results], expected[:2])
    assert answer.meta.billed_units.search_units == 1


def test_cohere_limits_the_tokens_of_a_document(server: str) -> None:
    cohere = pytest.importorskip("cohere")
    client = cohere.ClientV2("a key", base_url=server)
    whole = client.rerank(model="any", query=QUERY, documents=["whales breathe air"], max_tokens_per_doc=2)
    cut = client.rerank(model="any", query=QUERY, documents=["whales breathe"])
    other = client.rerank(model="any", query=QUERY, documents=["whales breathe air"])
    assert whole.results[0].relevance_score == pytest.approx(cut.results[0].relevance_score)
    assert whole.results[0].relevance_score != pytest.approx(other.results[0].relevance_score, rel=1e-6)


def test_cohere_warns_of_truncated_documents(server: str) -> None:
    cohere = pytest.importorskip("cohere")
    client = cohere.ClientV2("a key", base_url=server)
    answer = client.rerank(model="any", query=QUERY, documents=[TEXTS[0], "whales " * 10_000])
    assert len(answer.results) == 2
    assert answer.meta.warnings == ["documents 1: longer than what the model reads; the ends were not read."]


def test_cohere_raises_its_own_errors(server: str) -> None:
    cohere = pytest.importorskip("cohere")
    client = cohere.ClientV2("a key", base_url=server)
    with pytest.raises(cohere.errors.UnprocessableEntityError) as refused:
        client.rerank(model="any", query=QUERY, documents=[])
    assert refused.value.body["message"].startswith("documents has 0 entries")


@pytest.mark.parametrize("path", ["", "/similarity"])
def test_huggingface_hub_compares_sentences(server: str, expected: list[tuple[int, float]], path: str) -> None:
    from huggingface_hub import InferenceClient

    scores = InferenceClient().sentence_similarity(QUERY, other_sentences=TEXTS, model=server + path)
    assert scores == pytest.approx([score for _, score in sorted(expected)])


def test_huggingface_hub_raises_its_own_errors(server: str) -> None:
    from huggingface_hub import InferenceClient
    from huggingface_hub.errors import HfHubHTTPError

    with pytest.raises(HfHubHTTPError, match=r"inputs\.sentences has 0 entries"):
        InferenceClient().sentence_similarity(QUERY, other_sentences=[], model=f"{server}/similarity")


def test_llama_index_with_text_embeddings_inference(server: str, expected: list[tuple[int, float]]) -> None:
    tei = pytest.importorskip("llama_index.postprocessor.tei_rerank")
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(id_=str(place), text=text)) for place, text in enumerate(TEXTS)]
    ranked = tei.TextEmbeddingInference(base_url=server, top_n=3).postprocess_nodes(nodes, query_str=QUERY)
    assert same([(int(each.node.node_id), each.score) for each in ranked], expected[:3])


def test_plain_http_to_every_rerank_route(server: str, expected: list[tuple[int, float]]) -> None:
    bare = requests.post(f"{server}/rerank", json={"query": QUERY, "texts": TEXTS}, timeout=60)
    assert same([(each["index"], each["score"]) for each in bare.json()], expected)
    assert int(bare.headers["x-compute-tokens"]) > 4 * 10
    for route in ("rerank", "v1/rerank", "v2/rerank"):
        body = {"query": QUERY, "documents": TEXTS}
        results = requests.post(f"{server}/{route}", json=body, timeout=60).json()["results"]
        assert same([(each["index"], each["relevance_score"]) for each in results], expected)


def test_tokenize_returns_the_pieces_that_the_model_reads(server: str) -> None:
    (pieces,) = requests.post(f"{server}/tokenize", json={"inputs": "Whales breathe"}, timeout=60).json()
    assert [(each["text"], each["special"], each["start"], each["stop"]) for each in pieces] == [
        ("[CLS]", True, None, None),
        ("whales", False, 0, 6),
        ("breathe", False, 7, 14),
        ("[SEP]", True, None, None),
    ]


def test_predict_gives_the_scores_of_the_pairs(server: str, expected: list[tuple[int, float]]) -> None:
    body = {"inputs": [[QUERY, text] for text in TEXTS]}
    scores = [each["score"] for (each,) in requests.post(f"{server}/predict", json=body, timeout=60).json()]
    assert scores == pytest.approx([score for _, score in sorted(expected)])


def test_an_answer_has_the_id_of_its_request(server: str) -> None:
    headers = {"x-request-id": "7f-client"}
    for path in ("health", "nowhere"):
        answer = requests.get(f"{server}/{path}", headers=headers, timeout=60)
        assert answer.headers["x-request-id"] == "7f-client"
    assert len(requests.get(f"{server}/health", timeout=60).headers["x-request-id"]) > 8


def test_head_needs_no_body_and_bodies_may_be_gzipped(server: str) -> None:
    answer = requests.head(f"{server}/health", timeout=60)
    assert (answer.status_code, answer.content) == (200, b"")
    compressed = gzip.compress(json.dumps({"query": QUERY, "texts": TEXTS}).encode())
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    assert requests.post(f"{server}/rerank", data=compressed, headers=headers, timeout=60).status_code == 200


@pytest.fixture(scope="module")
def two_ingresses(serving: str, model_folder: Path) -> Iterator[str]:
    serve.run(build({"model": str(model_folder), "resources.ingress": 2}), name="two", route_prefix="/two")
    yield f"{serving}/two"
    serve.delete("two")


def test_a_scrape_has_the_sums_of_all_ingress_replicas(two_ingresses: str) -> None:
    for _ in range(20):
        assert requests.post(f"{two_ingresses}/rerank", json={"query": QUERY, "texts": TEXTS}, timeout=60).ok
    for _ in range(5):
        text = requests.get(f"{two_ingresses}/metrics", timeout=60).text
        samples = {
            (sample.name, sample.labels.get("route")): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        assert samples["rayrank_requests_total", "/rerank"] == 20
        assert samples["rayrank_pairs_total", None] == 20 * len(TEXTS)
        assert samples["rayrank_cached_passages_total", None] == 19 * len(TEXTS)
        assert samples["rayrank_ingress_replicas", None] == 2
        assert (samples["rayrank_model_replicas", None], samples["rayrank_queued_pairs", None]) == (1, 0)
