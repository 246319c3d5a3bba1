"""Prometheus metrics of one ingress replica."""

from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from rayrank.serve.records import Answer

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters of one ingress replica. A scrape may reach any replica, so each has its own `ingress` label: otherwise a
    counter would seem to decrease from one scrape to the next."""

    def __init__(self) -> None:
        self._ingress = uuid4().hex[:8]
        self._registry = CollectorRegistry()
        self._requests = self._counter("rayrank_requests", "Requests by route and status", "route", "status")
        self._latency = self._histogram("rayrank_request_seconds", "From the first byte to the answer", "route")
        self._phases = self._histogram(
            "rayrank_phase_seconds", "Seconds of a request in each phase: queue, tokenise, score", "phase"
        )
        self._pairs = self._counter("rayrank_pairs", "Query-passage pairs scored")
        self._tokens = self._counter("rayrank_tokens", "Word pieces scored")

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(route, str(status), self._ingress).inc()
        self._latency.labels(route, self._ingress).observe(seconds)

    def answer(self, answer: Answer) -> None:
        """Count the pairs, the word pieces and the phases of a model's answer."""
        self._pairs.labels(self._ingress).inc(sum(logit is not None for logit in answer.logits))
        self._tokens.labels(self._ingress).inc(answer.num_tokens)
        for phase in ("queue", "tokenise", "score"):
            self._phases.labels(phase, self._ingress).observe(getattr(answer.timing, phase))

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(name, meaning, [*labels, "ingress"], registry=self._registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(name, meaning, [*labels, "ingress"], buckets=SECONDS, registry=self._registry)
