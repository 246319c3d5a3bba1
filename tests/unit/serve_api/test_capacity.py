"""A running endpoint is measured over HTTP."""

import socket
import threading
from collections.abc import Iterator

import pytest

from rayrank.capacity.measuring import generated, measure
from rayrank.capacity.planning import plan
from rayrank.core.errors import ConfigError
from tests.unit.serve_api.conftest import WordScorer


def test_an_endpoint_is_measured_at_increasing_loads_and_planned_for(api: str, scorer: WordScorer) -> None:
    first = len(scorer.asks)
    texts = [("whales", ["whales sing", "bread"]), ("bread", ["yeast"])]
    found = measure(f"{api}/", texts, "a file", [3], 0.2, "", lambda line: None)

    (curve,) = found.curves
    assert (found.model, found.device, curve.documents) == ("words", "cpu", 3)
    # A query's own documents come first, then those of the next ones.
    asks = scorer.asks[first:]
    assert {(ask.query, tuple(passage.partition(" ")[2] for passage in ask.passages)) for ask in asks} == {
        ("whales", ("whales sing", "bread", "yeast")),
        ("bread", ("yeast", "whales sing", "bread")),
    }
    # Documents are new to the endpoint, which would have the pieces of repeated ones in its cache; two of the loads may
    # have numbers in common by chance.
    sent = [passage for ask in asks for passage in ask.passages]
    assert len(set(sent)) > len(sent) / 2 > 300
    # The scorer reports two replicas.
    assert {point.replicas for point in curve.points} == {2}
    rates = [point.rps for point in curve.points]
    assert rates == sorted(rates)
    assert all(point.num_requests >= 30 and 0 < point.p50 <= point.p95 <= point.p99 for point in curve.points)
    # Half of the lowest load is carried by one replica, however busy this machine is.
    slowest = max(point.p95 for point in curve.points)
    assert plan(found, rates[0] / 4, 3, slowest + 1).replicas == 1


def test_an_endpoint_that_refuses_all_requests_is_not_measured(api: str) -> None:
    with pytest.raises(ConfigError, match="answered no request of 60 documents"):
        measure(api, generated(1), "generated texts", [60], 0.1, "", lambda line: None)


def test_an_address_without_an_endpoint_is_refused_in_one_sentence() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with pytest.raises(ConfigError, match=r"does not answer .*start one with rayrank serve"):
        measure(url, generated(1), "generated texts", [1], 0.1, "", lambda line: None)


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a port that answers one connection with the bytes of the parameter."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection = server.accept()[0]
            with connection:
                connection.recv(10_000)
                connection.sendall(request.param)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


@pytest.mark.parametrize(
    ("answering", "sentence"),
    [
        (b"SSH-2.0-OpenSSH\r\n", r"does not answer \(SSH-2.0-OpenSSH\); start one"),
        (b"HTTP/1.0 200 OK\r\n\r\n<html>", "its /info does not tell model_id, device, backend, model_dtype; name"),
        (b'HTTP/1.0 200 OK\r\n\r\n{"model_id": "bge", "backend": "tei"}', "its /info does not tell model_id, device"),
    ],
    indirect=["answering"],
)
def test_what_is_no_rayrank_endpoint_is_refused_before_the_load(answering: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        measure(answering, generated(1), "generated texts", [1], 0.1, "", lambda line: None)


def test_a_url_that_is_none_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"does not answer .*nonnumeric port"):
        measure("http://localhost:80a0", generated(1), "generated texts", [1], 0.1, "", lambda line: None)
