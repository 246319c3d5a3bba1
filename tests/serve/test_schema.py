"""Answers conform to the OpenAPI document, for valid and invalid requests."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from ray import serve

from rayrank.serve.app import build

schemathesis = pytest.importorskip("schemathesis")

ROUTES = [
    ("POST", "/rerank"), ("POST", "/v1/rerank"), ("POST", "/v2/rerank"), ("POST", "/score"), ("POST", "/similarity"),
    ("POST", "/v1/score"), ("POST", "/"), ("POST", "/predict"), ("POST", "/tokenize"), ("POST", "/search"),
    ("POST", "/explain"), ("GET", "/v1/models"), ("GET", "/v1/models/{name}"), ("GET", "/models"), ("GET", "/info"),
    ("GET", "/health"), ("GET", "/ready"), ("GET", "/metrics"),
]  # fmt: skip

QUICK = [("POST", "/v2/rerank"), *(route for route in ROUTES if route[0] == "GET")]


@pytest.fixture(scope="module")
def schema(server: str) -> Any:
    return schemathesis.openapi.from_url(f"{server}/openapi.json")


@pytest.fixture(scope="module")
def schema_with_search(serving: str, model_folder: Path, run_folder: Path) -> Iterator[Any]:
    arguments = {"model": str(model_folder), "search.run": str(run_folder)}
    serve.run(build(arguments), name="searched", route_prefix="/searched")
    yield schemathesis.openapi.from_url(f"{serving}/searched/openapi.json")
    serve.delete("searched")


def test_every_route_is_described(schema: Any) -> None:
    described = {(each.ok().method.upper(), each.ok().path) for each in schema.get_all_operations()}
    assert described == set(ROUTES)


@pytest.mark.parametrize(
    ("method", "path"),
    [pytest.param(*route, marks=[] if route in QUICK else [pytest.mark.slow]) for route in ROUTES],
)
def test_answers_are_as_described(schema: Any, method: str, path: str) -> None:
    seen = try_all(schema, method, path)
    # Without an index, /search answers 404; no generated name is that of the model.
    assert (404 if path in ("/search", "/v1/models/{name}") else 200) in seen
    # No faults of the server: text-embeddings-inference reports them as 424.
    assert max(seen) < 500
    assert 424 not in seen


@pytest.mark.slow
def test_answers_from_an_index_are_as_described(schema_with_search: Any) -> None:
    assert 200 in try_all(schema_with_search, "POST", "/search")


def try_all(schema: Any, method: str, path: str) -> set[int]:
    """Send valid and invalid requests, and return the statuses of the answers."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    promises = [
        not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_headers_conformance, checks.response_schema_conformance,
    ]  # fmt: skip
    right, wrong = (schema[path][method].as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode)
    # A request without a body cannot be invalid.
    cases, num_cases = (right | wrong, 50) if method == "POST" else (right, 2)
    seen = set()

    @settings(
        max_examples=num_cases, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=cases)
    def try_one(case: Any) -> None:
        seen.add(case.call_and_validate(checks=promises, timeout=60).status_code)

    try_one()
    return seen
