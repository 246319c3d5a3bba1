"""Traces and counters, as a collector receives them over HTTP."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rayrank.core.errors import ConfigError
from rayrank.serve.config import HttpConfig, ServeConfig, read
from rayrank.serve.telemetry import check_installed

MESSAGES: dict[str, Any] = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector:
    """Keeps what is sent to it."""

    def __init__(self) -> None:
        received = self.received = {path: [] for path in MESSAGES}

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                received[self.path].append(MESSAGES[self.path].FromString(body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self) -> dict[str, Any]:
        resources = [each for message in self.received["/v1/traces"] for each in message.resource_spans]
        return {span.name: span for each in resources for scope in each.scope_spans for span in scope.spans}

    def counts(self) -> dict[str, int]:
        resources = [each for message in self.received["/v1/metrics"] for each in message.resource_metrics]
        metrics = [metric for each in resources for scope in each.scope_metrics for metric in scope.metrics]
        return {metric.name: sum(int(p.as_double) for p in metric.sum.data_points) for metric in metrics}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    found = Collector()
    yield found
    found.server.shutdown()


def until(fact: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_request_is_a_trace_below_its_caller_with_the_steps_of_the_model(
    collector: Collector, start: Callable[..., str]
) -> None:
    url = start(ServeConfig(name="words", http=HttpConfig(otlp=f"http://127.0.0.1:{collector.server.server_port}/")))
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    requests.post(f"{url}/v1/rerank", json={"query": "a", "documents": ["a", "b"]}, headers=headers, timeout=10)
    until(lambda: {"POST /v1/rerank", "tokenise", "queue", "score"} <= set(collector.spans()))

    spans = collector.spans()
    root = spans["POST /v1/rerank"]
    assert root.trace_id.hex() == TRACE
    assert root.parent_span_id.hex() == PARENT
    found = {each.key: each.value.string_value or each.value.int_value for each in root.attributes}
    assert found == {
        "http.request.method": "POST", "http.route": "/v1/rerank", "http.response.status_code": 200,
        "rayrank.documents": 2, "rayrank.model": "words",
    }  # fmt: skip
    steps = [spans[name] for name in ("tokenise", "queue", "score")]
    assert all(step.parent_span_id == root.span_id for step in steps)
    taken = [(step.end_time_unix_nano - step.start_time_unix_nano) / 1e9 for step in steps]
    assert taken == pytest.approx([0.001, 0.002, 0.003], abs=1e-6)


def test_the_counters_of_metrics_arrive_too(collector: Collector, start: Callable[..., str]) -> None:
    url = start(ServeConfig(name="words", http=HttpConfig(otlp=f"http://127.0.0.1:{collector.server.server_port}")))
    for _ in range(3):
        requests.post(f"{url}/v1/rerank", json={"query": "a", "documents": ["a", "b"]}, timeout=10)
    until(lambda: collector.counts().get("rayrank_pairs") == 6)
    assert collector.counts()["rayrank_requests"] == 3


def test_a_collector_that_is_not_there_delays_no_request(
    start: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    url = start(ServeConfig(name="words", http=HttpConfig(otlp="http://127.0.0.1:1")))
    answer = requests.post(f"{url}/v1/rerank", json={"query": "a", "documents": ["a"]}, timeout=10)
    assert answer.status_code == 200


def test_an_address_that_is_no_url_and_a_missing_exporter_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"http\.otlp"):
        read({"model": "m", "http.otlp": "collector:4318"})
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(ConfigError, match=r"pip install 'rayrank\[otel\]'"):
        check_installed("http://collector:4318")
