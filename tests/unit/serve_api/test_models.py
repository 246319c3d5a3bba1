"""Several models behind one endpoint: a request's `model` chooses, in the form of every API that has the field."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from rayrank.serve.config import ServeConfig
from tests.unit.serve_api.conftest import WordScorer, served
from tests.unit.serve_api.test_operators import scraped

TEXTS = ["bread needs yeast", "whales breathe air"]
DOCUMENTS = {"query": "how do whales breathe", "documents": TEXTS}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/rerank": DOCUMENTS,
    "/v2/rerank": DOCUMENTS,
    "/rerank": DOCUMENTS,
    "/score": {"text_1": "whales", "text_2": TEXTS},
    "/predict": {"inputs": ["whales", "whales breathe air"]},
    "/tokenize": {"inputs": "whales"},
    "/similarity": {"inputs": {"source_sentence": "whales", "sentences": TEXTS}},
    "/": {"query": "whales", "texts": TEXTS},
    "/explain": {"query": "whales", "document": "whales breathe air"},
}
LARGE, SMALL = "large", "team/small-v1.5"


@pytest.fixture(scope="module")
def two() -> Iterator[tuple[str, dict[str, WordScorer]]]:
    """The URL of an endpoint of two models, and the models by name."""
    models = {name: WordScorer(name) for name in (LARGE, SMALL)}
    for url in served(models, ServeConfig(name=LARGE)):
        yield url, models


def post(url: str, body: dict[str, Any]) -> requests.Response:
    return requests.post(url, json=body, timeout=10)


@pytest.mark.parametrize(("asked", "answers"), [(SMALL, SMALL), (LARGE, LARGE), (None, LARGE), ("", LARGE)])
def test_the_model_field_chooses_and_without_it_the_first_model_answers(
    two: tuple[str, dict[str, WordScorer]], asked: str | None, answers: str
) -> None:
    url, models = two
    before = {name: len(each.asks) for name, each in models.items()}
    for route in ("/v1/rerank", "/rerank", "/score"):
        assert post(url + route, {**ROUTES[route], "model": asked}).json()["model"] == answers
    for route in ("/v2/rerank", "/predict", "/similarity", "/"):
        assert post(url + route, {**ROUTES[route], "model": asked}).status_code == 200
    asks = {name: len(each.asks) - before[name] for name, each in models.items()}
    assert asks == {name: 7 if name == answers else 0 for name in models}


@pytest.mark.parametrize("route", ROUTES)
def test_an_unknown_model_is_refused_as_each_api_does_and_the_known_ones_are_named(
    two: tuple[str, dict[str, WordScorer]], route: str
) -> None:
    answer = post(two[0] + route, {**ROUTES[route], "model": "rerank-v3.5"})
    # Infinity answers 400, Cohere and vLLM answer 404.
    assert answer.status_code == (400 if route == "/rerank" else 404)
    body, message = answer.json(), f"There is no model rerank-v3.5: this server has {LARGE}, {SMALL}."
    error = body["error"] if "error" in body else body["message"]
    assert message == (error["message"] if isinstance(error, dict) else error)
    if isinstance(error, dict):
        assert (error["param"], error["code"]) == ("model", answer.status_code)


def test_a_single_model_answers_to_every_name(api: str) -> None:
    for route, body in ROUTES.items():
        assert post(api + route, {**body, "model": "rerank-v3.5"}).status_code == 200, route


def test_all_models_are_listed_and_each_is_described(two: tuple[str, dict[str, WordScorer]]) -> None:
    def get(path: str) -> Any:
        return requests.get(two[0] + path, timeout=10).json()

    for path in ("/v1/models", "/models"):
        assert [model["id"] for model in get(path)["data"]] == [LARGE, SMALL]
    assert get(f"/v1/models/{SMALL}")["id"] == SMALL
    assert get("/v1/models/other")["error"]["code"] == 404
    assert (get("/info")["model_id"], get("/info")["models"]) == (LARGE, [LARGE, SMALL])
    assert get(f"/info?model={SMALL}")["model_id"] == SMALL


def test_figures_and_readiness_are_of_each_model(start: Callable[..., str]) -> None:
    url = start(ServeConfig(name=LARGE), WordScorer(LARGE), WordScorer(SMALL, is_stuck=True))
    post(f"{url}/v1/rerank", DOCUMENTS)
    post(f"{url}/v1/rerank", {**DOCUMENTS, "model": SMALL})
    post(f"{url}/v1/rerank", {**DOCUMENTS, "model": "other"})
    found = scraped(url)
    for name in (LARGE, SMALL):
        assert found[f"rayrank_requests_total /v1/rerank 200 {name}"] == 1
        assert found[f"rayrank_pairs_total {name}"] == 2
        assert found[f"rayrank_queued_pairs {name}"] == 23
    # The names that clients send do not become labels.
    assert found["rayrank_requests_total /v1/rerank 404"] == 1
    statuses = [requests.get(f"{url}/ready{of}", timeout=10).status_code for of in ("", f"?model={LARGE}")]
    assert statuses == [503, 200]
