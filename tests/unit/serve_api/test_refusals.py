"""Refused requests: the status, and the error format of each API."""

import gzip
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from rayrank.core.errors import ConfigError
from rayrank.serve import limits
from rayrank.serve.api import create_api
from rayrank.serve.config import LimitsConfig, ServeConfig
from rayrank.serve.records import Backend, Info, Overloaded, Unready

JSON = {"content-type": "application/json"}
TEI, V1, V2, SCORE = "/rerank", "/v1/rerank", "/v2/rerank", "/score"


def post(url: str, body: bytes, headers: dict[str, str] = JSON) -> requests.Response:
    return requests.post(url, data=body, headers=headers, timeout=10)


def ask(query: str, route: str, texts: list[str]) -> bytes:
    names = {TEI: ("query", "texts"), SCORE: ("text_1", "text_2")}
    first, second = names.get(route, ("query", "documents"))
    return json.dumps({first: query, second: texts}).encode()


def said(answer: requests.Response, route: str) -> str:
    """Return the message of an error, and check that the error has exactly the fields of its API."""
    body = answer.json()
    if route == TEI:
        assert set(body) == {"error", "error_type"}
        return str(body["error"])
    assert set(body) == ({"error"} if route == SCORE else {"message", "id", "error", "detail"})
    assert set(body["error"]) == {"message", "type", "param", "code"}
    return str(body["error"]["message"])


@pytest.mark.parametrize("route", [TEI, V1, V2, SCORE])
@pytest.mark.parametrize(
    ("query", "status", "words"),
    [("overloaded", 429, "in 3 s"), ("unready", 503, "No model"), ("broken", 500, "its log says why")],
)
def test_failures_of_the_model_have_the_error_format_of_the_api(
    api: str, route: str, query: str, status: int, words: str
) -> None:
    answer = post(api + route, ask(query, route, ["a"]))
    # text-embeddings-inference reports a failed model as 424.
    assert answer.status_code == (424 if (route, status) == (TEI, 500) else status)
    assert words in said(answer, route)
    if route == TEI:
        kinds = {429: "Overloaded", 500: "Backend", 503: "Unhealthy"}
        assert answer.json()["error_type"] == kinds[status]
    assert "secret" not in answer.text
    assert answer.headers.get("retry-after") == {429: "3", 503: "5"}.get(status)


@pytest.mark.parametrize(("route", "status"), [(TEI, 413), (V1, 422), (V2, 422), (SCORE, 422)])
def test_too_many_documents_have_the_status_of_the_api(api: str, route: str, status: int) -> None:
    answer = post(api + route, ask("q", route, ["a"] * 51))
    assert answer.status_code == status
    assert "at most 50" in said(answer, route)


@pytest.mark.parametrize(("route", "status"), [(TEI, 400), (V1, 422), (V2, 422), (SCORE, 422)])
def test_an_empty_list_has_the_status_of_the_api(api: str, route: str, status: int) -> None:
    answer = post(api + route, ask("q", route, []))
    assert answer.status_code == status
    assert "at least 1" in said(answer, route)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"documents": ["a"]}', "query"),
        ('{"query": "q"}', "documents"),
        ('{"query": "", "documents": ["a"]}', "query"),
        ('{"query": 3, "documents": ["a"]}', "query"),
        ('{"query": "q", "documents": "a"}', "documents"),
        ('{"query": "q", "documents": ["a", 3]}', "documents.1"),
        ('{"query": "q", "documents": ["a", null]}', "documents.1"),
        ('{"query": "q", "documents": [{"text": 3}]}', "documents.0.text"),
        ('{"query": "q", "documents": [{"id": "no text"}]}', "documents.0"),
        ('{"query": "q", "documents": ["a"], "top_n": "2"}', "top_n"),
        ('{"query": "q", "documents": ["a"], "top_n": -1}', "top_n"),
        ('{"query": "q", "documents": ["a"], "first_stage_scores": [1e999]}', "first_stage_scores.0"),
        ('{"query": "q", "documents": ["a"], "first_stage_scores": [1%s]}' % ("0" * 400), "first_stage_scores.0"),
        ('{"query": "q", "documents": ["a"], "first_stage_scores": [1, 2]}', "first_stage_scores"),
        ('{"query": "q", "documents": ["a"], "first_stage_weight": 0.5}', "first_stage_weight"),
        ('{"query": "q", "documents": ["a"], "first_stage_weight": 2}', "first_stage_weight"),
        ('{"query": "q", "documents": ["a"], "deadline_ms": 0}', "deadline_ms"),
    ],
)
def test_a_wrong_field_is_named(api: str, body: str, field: str) -> None:
    answer = post(api + V1, body.encode())
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == field
    assert field in said(answer, V1)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"\x00", b'{"query": "q\x00", "documents": ["a"]}', b'{"query": "\xff", "documents": ["a"]}',
        rb'{"query": "\ud800", "documents": ["a"]}', b"[" * 19_000, b'{"a":' * 3_000, b"1" * 10_000,
        b'{"query": "q", "documents": ["a"], "first_stage_scores": [NaN]}',
        b'{"query": "q", "documents": ["a"], "first_stage_weight": Infinity}',
        b'{"query": "q", "query": "r", "documents": ["a"]}', b'{"query": "q", "documents": ["a"]} more',
    ],
)  # fmt: skip
@pytest.mark.parametrize("route", [TEI, V1, V2, SCORE])
def test_invalid_json_is_refused(api: str, route: str, body: bytes) -> None:
    answer = post(api + route, body)
    assert answer.status_code == 400, answer.text
    assert said(answer, route).startswith("The body is not JSON")


@pytest.mark.parametrize("body", [b"null", b"[]", b"3", b'"text"', b"[[[]]]"])
@pytest.mark.parametrize("route", [TEI, V1, V2, SCORE, "/search", "/explain", "/similarity"])
def test_json_that_is_not_an_object_is_refused(api: str, route: str, body: bytes) -> None:
    assert post(api + route, body).status_code == 422


def test_null_characters_in_a_text_are_accepted(api: str) -> None:
    assert post(api + V1, rb'{"query": "q", "documents": ["a\u0000b"]}').status_code == 200


def test_errors_do_not_quote_the_clients_text(api: str) -> None:
    secret = "patient 4711 " * 500
    for body in ({"query": "q", "documents": [{"title": secret}]}, {"query": "q", "documents": [secret, 3]}):
        answer = requests.post(api + V1, json=body, timeout=10)
        assert answer.status_code == 422
        assert "patient" not in answer.text
    twice = json.dumps(secret).encode()
    assert len(said(post(api + V2, b"{%s: 1, %s: 2}" % (twice, twice)), V2)) < 350


@pytest.mark.parametrize("route", [TEI, V1, V2, SCORE])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_while_it_is_read(api: str, route: str, chunked: bool) -> None:
    body = ask("q", route, ["x" * 1000] * 10_000)
    pieces = (body[start : start + 10_000] for start in range(0, len(body), 10_000))
    answer = requests.post(api + route, data=pieces if chunked else body, headers=JSON, timeout=10)
    assert answer.status_code == 413
    assert "20000 bytes" in said(answer, route)


def test_bodies_that_wait_have_room_for_a_number_of_bytes_in_all(start: Callable[..., str]) -> None:
    limits = LimitsConfig(body_bytes=20_000, waiting_bytes=30_000)
    place = urlsplit(start(ServeConfig(name="words", limits=limits)))
    head = b"POST /v2/rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 19000\r\n\r\n"
    body = ask("q", V2, ["x" * 15_000])
    assert post(place.geturl() + V2, body).status_code == 200
    with socket.create_connection((place.hostname, place.port), timeout=10) as client:
        client.sendall(head + b" " * 18_000)
        refused = None
        while refused is None or refused.status_code == 200:
            refused = post(place.geturl() + V2, body)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    # The room of a client that has left is free again.
    while (answer := post(place.geturl() + V2, body)).status_code == 429:
        pass
    assert answer.status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_another_content_type_is_refused(api: str, kind: str) -> None:
    answer = post(api + V2, ask("q", V2, ["a"]), {"content-type": kind})
    assert answer.status_code == 415
    assert "send application/json" in said(answer, V2)


GZIPPED = {**JSON, "content-encoding": "gzip"}


def test_a_body_may_be_compressed_by_gzip(api: str) -> None:
    compressed = gzip.compress(ask("q", V2, ["a", "b"]))
    assert len(post(api + V2, compressed, GZIPPED).json()["results"]) == 2
    chunks = (compressed[place : place + 1] for place in range(len(compressed)))
    assert requests.post(api + V2, data=chunks, headers=GZIPPED, timeout=10).status_code == 200


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (gzip.compress(ask("q", V2, ["x" * 10_000_000])), 413, "larger than 20000 bytes"),
        (gzip.compress(b"", 0) + b"\0" * 30_000, 413, "larger than 20000 bytes"),
        (gzip.compress(ask("q", V2, ["a"]))[:-9], 400, "ends too early"),
        (ask("q", V2, ["a"]), 400, "not gzip"),
        (gzip.compress(b"{"), 400, "not JSON"),
    ],
    ids=["bomb", "two members", "incomplete", "plain", "no JSON"],
)  # fmt: skip
def test_a_compressed_body_has_the_limits_of_any_other(api: str, body: bytes, status: int, words: str) -> None:
    answer = post(api + V2, body, GZIPPED)
    assert answer.status_code == status
    assert words in said(answer, V2)


def test_another_compression_is_refused(api: str) -> None:
    answer = post(api + V2, ask("q", V2, ["a"]), {**JSON, "content-encoding": "br"})
    assert answer.status_code == 415
    assert "send gzip" in said(answer, V2)


def test_json_content_types_with_a_charset_or_suffix_are_accepted(api: str) -> None:
    for kind in ("application/json; charset=utf-8", "application/vnd.api+json"):
        assert post(api + V2, ask("q", V2, ["a"]), {"content-type": kind}).status_code == 200


def test_a_body_that_arrives_too_slowly_is_refused(start: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.3)
    place = urlsplit(start(ServeConfig(name="words")))
    with socket.create_connection((place.hostname, place.port), timeout=10) as client:
        client.sendall(
            b"POST /v2/rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n{"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ({}, 401), ({"authorization": "Bearer wrong"}, 401), ({"authorization": "Basic second"}, 401),
        ({"authorization": "Bearer "}, 401), ({"authorization": "Bearer sécond".encode("latin-1")}, 401),
        ({"authorization": "Bearer second"}, 200), ({"authorization": "bearer first"}, 200),
        ({"authorization": "Bearer a-key-from-outside"}, 200),
    ],
)  # fmt: skip
def test_a_request_needs_one_of_the_keys(
    start: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: dict[str, Any], status: int
) -> None:
    (tmp_path / "keys").write_text("first\n\nsecond \n")
    monkeypatch.setenv("RAYRANK_API_KEYS", "a-key-from-outside")
    url = start(ServeConfig(name="words", keys_file=str(tmp_path / "keys")))
    assert post(url + V1, ask("q", V1, ["a"]), {**JSON, **header}).status_code == status
    for path in ("/info", "/v1/models", "/metrics"):
        assert requests.get(url + path, headers=header, timeout=10).status_code == status
    for path in ("/health", "/ready", "/docs", "/openapi.json"):
        assert requests.get(url + path, timeout=10).status_code == 200


def test_the_key_is_checked_before_the_body_is_read(start: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYRANK_API_KEYS", "key" * 6)
    url = start(ServeConfig(name="words"))
    for route in (TEI, V1, V2, SCORE):
        answer = post(url + route, b"x" * 10_000_000)
        assert answer.status_code == 401
        assert "Authorization: Bearer KEY" in said(answer, route)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_a_keys_file_without_keys_is_refused(tmp_path: Path, scorer: Any) -> None:
    with pytest.raises(ConfigError, match=r"keys_file=.* cannot be read"):
        create_api({"words": scorer}, ServeConfig(keys_file=str(tmp_path / "none")))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="has no keys"):
        create_api({"words": scorer}, ServeConfig(keys_file=str(tmp_path / "empty")))


def test_a_wrong_method_gets_the_allowed_one(api: str) -> None:
    for route in (TEI, V1, V2, SCORE):
        answer = requests.get(api + route, timeout=10)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        assert said(answer, route) == f"{route} does not support GET: send POST."


def test_an_unknown_path_has_the_error_format_of_its_prefix(api: str) -> None:
    for path, route in (("/rerank/more", TEI), ("/v1/chat", V1), ("/v2/chat", V2), ("/nowhere", SCORE)):
        answer = requests.post(api + path, timeout=10)
        assert answer.status_code == 404
        assert said(answer, route) == f"There is no {path}: /docs lists all routes."


@pytest.mark.parametrize("path", ["/v1/rerank/", "/search/", "/docs/"])
def test_a_slash_at_the_end_of_a_path_is_not_redirected_to_the_address_behind_a_proxy(api: str, path: str) -> None:
    answer = requests.post(api + path, json={}, timeout=10, allow_redirects=False)
    assert answer.status_code == 404
    assert f"There is no {path}: /docs lists all routes." in answer.text


@pytest.mark.parametrize("route", [TEI, V1, V2, SCORE, "/"])
def test_a_body_that_is_a_long_list_is_named_as_the_body(api: str, route: str) -> None:
    answer = post(api + route, json.dumps(["a"] * 51).encode())
    assert answer.status_code in (413, 422)
    assert "The body: 51 are too many; send at most 50 per request." in answer.text
    assert '"param":""' not in answer.text


def test_the_facts_of_a_busy_model_are_refused_as_its_scores_are(
    scorer: Backend, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def busy() -> Info:
        raise Overloaded(1.0)

    monkeypatch.setattr(scorer, "info", busy)

    assert requests.get(f"{api}/ready", timeout=10).status_code == 200
    assert requests.get(f"{api}/info", timeout=10).status_code == 429


def test_without_a_model_the_server_is_not_ready(scorer: Backend, api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone() -> None:
        raise Unready

    monkeypatch.setattr(scorer, "ready", gone)

    for path in ("ready", "health"):
        answer = requests.get(f"{api}/{path}", timeout=10)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_no_request_waits_for_ever(start: Callable[..., str]) -> None:
    url = start(ServeConfig(name="words", limits=LimitsConfig(request_s=0.2)))
    for route in (TEI, V1, V2, SCORE):
        answer = post(url + route, ask("late", route, ["a"]))
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert "within 0.2 s" in said(answer, route)
