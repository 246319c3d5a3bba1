"""Every client library of docs/CLIENTS.md; test_more_clients.py runs this script in an environment that has them.

`python clients.py URL` prints the results of each as [[position, score], ...], best first, or its error."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

QUERY = "how do whales breathe"
TEXTS = [
    "Bread needs yeast, flour and water.",
    "Whales come up for air and breathe through a blowhole.",
    "The stock market fell on Monday.",
    "Whales are mammals.",
]
MODEL = "any"

Ranked = list[tuple[int, float]]


def cohere_v1(url: str) -> Ranked:
    import cohere

    answer = cohere.Client("key", base_url=url).rerank(query=QUERY, documents=TEXTS, return_documents=True)
    assert all(each.document.text == TEXTS[each.index] for each in answer.results)
    return [(each.index, each.relevance_score) for each in answer.results]


def cohere_v2(url: str) -> Ranked:
    import cohere

    answer = cohere.ClientV2("key", base_url=url).rerank(
        model=MODEL, query=QUERY, documents=TEXTS, max_tokens_per_doc=4096
    )
    return [(each.index, each.relevance_score) for each in answer.results]


def langchain_cohere(url: str) -> Ranked:
    from langchain_cohere import CohereRerank

    ranked = CohereRerank(cohere_api_key="key", base_url=url, model=MODEL, top_n=len(TEXTS)).rerank(TEXTS, QUERY)
    return [(each["index"], each["relevance_score"]) for each in ranked]


def _litellm(provider: str, url: str) -> Ranked:
    import litellm

    answer = litellm.rerank(f"{provider}/{MODEL}", QUERY, TEXTS, api_base=url, api_key="key", return_documents=True)
    assert all(each["document"]["text"] == TEXTS[each["index"]] for each in answer.results)
    return [(each["index"], each["relevance_score"]) for each in answer.results]


def litellm_cohere(url: str) -> Ranked:
    return _litellm("cohere", f"{url}/v1/rerank")


def litellm_jina(url: str) -> Ranked:
    return _litellm("jina_ai", f"{url}/v1/rerank")


def litellm_infinity(url: str) -> Ranked:
    return _litellm("infinity", url)


def litellm_vllm(url: str) -> Ranked:
    return _litellm("hosted_vllm", f"{url}/v1")


def litellm_huggingface(url: str) -> Ranked:
    return _litellm("huggingface", url)


def _llama_index(postprocessor: Any) -> Ranked:
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [NodeWithScore(node=TextNode(id_=str(place), text=text)) for place, text in enumerate(TEXTS)]
    return [(int(each.node.node_id), each.score) for each in postprocessor.postprocess_nodes(nodes, query_str=QUERY)]


def llama_index_cohere(url: str) -> Ranked:
    from llama_index.postprocessor.cohere_rerank import CohereRerank

    return _llama_index(CohereRerank(api_key="key", base_url=url, top_n=len(TEXTS)))


def llama_index_tei(url: str) -> Ranked:
    from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

    return _llama_index(TextEmbeddingInference(base_url=url, top_n=len(TEXTS)))


def _haystack(ranker: Any) -> Ranked:
    from haystack import Document

    documents = [Document(id=str(place), content=text) for place, text in enumerate(TEXTS)]
    return [(int(each.id), each.score) for each in ranker.run(query=QUERY, documents=documents)["documents"]]


def haystack_jina(url: str) -> Ranked:
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.jina import JinaRanker

    return _haystack(JinaRanker(api_key=Secret.from_token("key"), model=MODEL, base_url=f"{url}/v1/rerank"))


def haystack_cohere(url: str) -> Ranked:
    from haystack.utils import Secret
    from haystack_integrations.components.rankers.cohere import CohereRanker

    return _haystack(CohereRanker(api_key=Secret.from_token("key"), model=MODEL, api_base_url=url))


def _rerankers(provider: str, url: str) -> Ranked:
    from rerankers.models.api_rankers import APIRanker

    ranker = APIRanker(MODEL, api_key="key", api_provider=provider, url=url)
    ranked = ranker.rank(query=QUERY, docs=TEXTS, doc_ids=list(range(len(TEXTS))))
    return [(each.doc_id, each.score) for each in ranked.results]


def rerankers_cohere(url: str) -> Ranked:
    return _rerankers("cohere", f"{url}/v1/rerank")


def rerankers_jina(url: str) -> Ranked:
    return _rerankers("jina", f"{url}/v1/rerank")


def rerankers_tei(url: str) -> Ranked:
    return _rerankers("text-embeddings-inference", f"{url}/rerank")


def huggingface_hub(url: str) -> Ranked:
    from huggingface_hub import InferenceClient

    scores = InferenceClient().sentence_similarity(QUERY, other_sentences=TEXTS, model=url)
    return sorted(enumerate(scores), key=lambda each: -each[1])


CLIENTS: tuple[Callable[[str], Ranked], ...] = (
    cohere_v1, cohere_v2, langchain_cohere, litellm_cohere, litellm_jina, litellm_infinity, litellm_vllm,
    litellm_huggingface, llama_index_cohere, llama_index_tei, haystack_jina, haystack_cohere,
    rerankers_cohere, rerankers_jina, rerankers_tei, huggingface_hub,
)  # fmt: skip


def main(url: str) -> None:
    """Write the results of all clients as one JSON object."""
    # None of them may reach for anything but the endpoint.
    os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", HAYSTACK_TELEMETRY_ENABLED="False")
    found: dict[str, Ranked | str] = {}
    for client in CLIENTS:
        try:
            found[client.__name__] = client(url)
        except Exception as error:
            found[client.__name__] = repr(error)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
