"""What Prometheus is told about the requests of one ingress."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from serve.records import Answer

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Counters of one application, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "rayrank_requests", "Requests by route and status", ["route", "status"], registry=self._registry
        )
        self._latency = Histogram(
            "rayrank_request_seconds", "From the first byte to the answer", ["route"],
            buckets=SECONDS, registry=self._registry,
        )  # fmt: skip
        self._phases = Histogram(
            "rayrank_phase_seconds", "What a request waited for: queue, tokenise, score", ["phase"],
            buckets=SECONDS, registry=self._registry,
        )  # fmt: skip
        self._pairs = Counter("rayrank_pairs", "Query-passage pairs scored", registry=self._registry)
        self._tokens = Counter("rayrank_tokens", "Word pieces scored", registry=self._registry)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def answer(self, answer: Answer) -> None:
        """Count what the model did."""
        self._pairs.inc(len(answer.order))
        self._tokens.inc(answer.num_tokens)
        for phase in ("queue", "tokenise", "score"):
            self._phases.labels(phase).observe(getattr(answer.timing, phase))

    def text(self) -> bytes:
        """Return all of it in Prometheus' text form."""
        return generate_latest(self._registry)
