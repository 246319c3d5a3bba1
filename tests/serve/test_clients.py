"""Client libraries of other servers work with only their URL changed."""

import pytest
import requests

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
    assert refused.value.body["message"].startswith("documents: ")


def test_huggingface_hub_compares_sentences(server: str, expected: list[tuple[int, float]]) -> None:
    from huggingface_hub import InferenceClient

    scores = InferenceClient().sentence_similarity(QUERY, other_sentences=TEXTS, model=f"{server}/similarity")
    assert scores == pytest.approx([score for _, score in sorted(expected)])


def test_huggingface_hub_raises_its_own_errors(server: str) -> None:
    from huggingface_hub import InferenceClient
    from huggingface_hub.errors import HfHubHTTPError

    with pytest.raises(HfHubHTTPError, match=r"inputs\.sentences: "):
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
