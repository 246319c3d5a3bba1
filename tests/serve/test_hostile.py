"""Input that is meant to break the endpoint gets an error status, and the endpoint keeps working."""

import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests

from tests.processes import below, of_those

JSON = {"content-type": "application/json"}
HEAD = b"POST /v2/rerank HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %s\r\n\r\n"
ROUTES = {"/rerank": "texts", "/v1/rerank": "documents", "/v2/rerank": "documents"}


def body(query: str, route: str, texts: list[str], **more: object) -> bytes:
    return json.dumps({"query": query, ROUTES[route]: texts, **more}).encode()


@pytest.fixture(autouse=True)
def _still_works(server: str) -> Iterator[None]:
    yield
    answer = requests.post(f"{server}/rerank", json={"query": "a", "texts": ["a", "b"]}, timeout=30)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("route", ROUTES)
def test_ten_megabytes_are_refused(server: str, route: str) -> None:
    large = body("q", route, ["x" * 1000] * 10_000)
    assert requests.post(server + route, data=large, headers=JSON, timeout=60).status_code == 413
    chunks = (large[start : start + 65_536] for start in range(0, len(large), 65_536))
    assert requests.post(server + route, data=chunks, headers=JSON, timeout=60).status_code == 413


def test_small_bodies_that_are_large_without_their_compression_are_refused(server: str) -> None:
    bomb = gzip.compress(b" " * (300 << 20), 1)
    assert len(bomb) < 2 << 20
    headers, before = {**JSON, "content-encoding": "gzip"}, _memory()
    for route in ROUTES:
        assert requests.post(server + route, data=bomb, headers=headers, timeout=60).status_code == 413
    assert _memory() - before < 100 << 20


@pytest.mark.parametrize(("route", "status"), [("/rerank", 413), ("/v1/rerank", 422), ("/v2/rerank", 422)])
def test_a_hundred_thousand_documents_are_refused(server: str, route: str, status: int) -> None:
    answer = requests.post(server + route, data=body("q", route, ["word"] * 100_000), headers=JSON, timeout=60)
    assert answer.status_code == status
    assert "at most 1000" in answer.text


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "hostile",
    [
        b"[" * 1_000_000, b'{"query":' * 100_000, b"\x00" * 1000, b"9" * 1_000_000,
        rb'{"query": "\udfff", "documents": ["a"], "texts": ["a"]}',
        b'{"query": "q", "documents": ["a"], "texts": ["a"], "first_stage_weight": NaN}',
        b'{"query": "q", "query": "q", "documents": ["a"], "texts": ["a"]}',
    ],
)  # fmt: skip
def test_invalid_json_is_refused(server: str, route: str, hostile: bytes) -> None:
    assert requests.post(server + route, data=hostile, headers=JSON, timeout=60).status_code == 400


@pytest.mark.timed
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("wrong", ["[" + "1," * 500_000 + "1]", "[" + "{}," * 500_000 + "{}]", "[{}]", "{}"])
def test_documents_of_a_wrong_type_are_refused_at_once(server: str, route: str, wrong: str) -> None:
    sent = f'{{"query": "q", "{ROUTES[route]}": {wrong}}}'
    started = time.monotonic()
    assert requests.post(server + route, data=sent, headers=JSON, timeout=60).status_code in (413, 422)
    assert time.monotonic() - started < 1


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    "text", ["", " ", "\x00", "\u202e\ufeff\U0001f40b" * 50, "w" * 100_000, "\x00word " * 10_000, "ab" * 50_000 + " ."]
)
def test_unusual_texts_are_scored(server: str, route: str, text: str) -> None:
    answer = requests.post(server + route, data=body("q" + text, route, [text, "a"]), headers=JSON, timeout=60)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("kind", ["text/plain", "application/xml", "multipart/form-data; boundary=x"])
def test_wrong_content_types_are_refused(server: str, kind: str) -> None:
    sent = body("q", "/v2/rerank", ["a"])
    assert (
        requests.post(f"{server}/v2/rerank", data=sent, headers={"content-type": kind}, timeout=60).status_code == 415
    )


def test_a_wrong_content_length_is_refused(server: str) -> None:
    place = urlsplit(server)
    for length in (10, 10**30):
        with socket.create_connection((place.hostname, place.port), timeout=30) as client:
            client.sendall(HEAD % str(length).encode() + body("q", "/v2/rerank", ["a"] * 1000))
            assert client.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 413")


@pytest.mark.timed
def test_slow_clients_do_not_block_others(server: str) -> None:
    place = urlsplit(server)
    slow = [socket.create_connection((place.hostname, place.port), timeout=60) for _ in range(50)]
    try:
        for client in slow:
            client.sendall(HEAD % b"99999" + b"{")
        started = time.monotonic()
        assert requests.post(f"{server}/v2/rerank", json={"query": "q", "documents": ["a"]}, timeout=30).ok
        assert time.monotonic() - started < 5
    finally:
        for client in slow:
            client.close()


def test_memory_stays_flat_under_large_bodies(server: str) -> None:
    large = body("q", "/v1/rerank", ["x" * 1000] * 10_000)

    def send() -> None:
        for _ in range(5):
            assert requests.post(f"{server}/v1/rerank", data=large, headers=JSON, timeout=60).status_code == 413

    send()
    before = _memory()
    assert before > 100 << 20
    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _memory() - before < 100 << 20


LARGE = (2 << 20) - 1000
ACCEPTED = {
    "dots": ["." * LARGE],
    "one word": ["x" * LARGE],
    "white space": [" " * LARGE],
    "many texts": [f"{place} " + "word " * (LARGE // 5000 - 5) for place in range(1000)],
}


@pytest.mark.timed
@pytest.mark.parametrize("texts", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_the_largest_accepted_texts_leave_memory_and_time_for_other_requests(server: str, texts: list[str]) -> None:
    # The deadline limits scoring, which is not measured here.
    large = body("q", "/v1/rerank", texts, return_documents=False, deadline_ms=3000)
    # The first request allocates memory that later ones reuse.
    requests.post(f"{server}/v1/rerank", json={"query": "q", "documents": ["."] * 1000}, timeout=60)
    statuses: list[int] = []

    def send() -> None:
        for _ in range(2):
            statuses.append(requests.post(f"{server}/v1/rerank", data=large, headers=JSON, timeout=60).status_code)

    before = most = _memory("ray::ServeReplica:server:Ranker")
    assert before > 100 << 20
    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    slowest = 0.0
    while any(thread.is_alive() for thread in threads):
        started = time.monotonic()
        assert requests.post(f"{server}/v2/rerank", json={"query": "q", "documents": ["a"]}, timeout=60).ok
        slowest = max(slowest, time.monotonic() - started)
        most = max(most, _memory("ray::ServeReplica:server:Ranker"))
    assert statuses == [200] * 8
    assert most - before < 300 << 20
    assert slowest < 10


def _memory(name: str = "ray::") -> int:
    """Return the memory in bytes of this process's Serve processes of that name."""
    return sum(of_those(below(os.getpid(), name), lambda each: each.memory_info().rss))
