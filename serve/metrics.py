"""Prometheus metrics of the endpoint. Every ingress replica counts its own requests; a scrape adds all of them up."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from rayrank.serve.records import Answer, Figures, Load

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """The counters of one ingress replica, and the last ones that it knows of each other replica.

    They are kept when a replica ends: without them the sums would decrease, which Prometheus takes for a restart."""

    def __init__(self) -> None:
        self._ingress = uuid4().hex
        self._known: dict[str, list[Metric]] = {}
        self._num_in_flight = 0
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by route, status and model", "route", "status", "model")
        self._latency = self._histogram("request_seconds", "From the first byte to the answer", "route", "model")
        self._phases = self._histogram(
            "phase_seconds", "Seconds of a request in each phase: queue, tokenise, score", "phase", "model"
        )
        self._pairs = self._counter("pairs", "Query-passage pairs scored", "model")
        self._tokens = self._counter("tokens", "Word pieces scored", "model")
        self._truncated = self._counter("truncated_passages", "Passages of which the end was not read", "model")
        self._partial = self._counter("partial_answers", "Answers that lack scores because of their deadline", "model")
        self._cached = self._counter("cached_passages", "Passages whose word pieces were in the cache", "model")
        self._client_requests = self._counter(
            "client_requests", "Requests by the name of their API key, and status", "client", "status"
        )
        self._client_passages = self._counter(
            "client_passages", "Passages sent to a model by the name of the request's API key", "client"
        )

    def request(self, route: str, status: int, seconds: float, model: str = "") -> None:
        """Count an answered request."""
        self._requests.labels(route, str(status), model).inc()
        self._latency.labels(route, model).observe(seconds)

    def client(self, name: str, status: int, num_passages: int) -> None:
        """Count an answered request for the holder of its API key."""
        self._client_requests.labels(name, str(status)).inc()
        self._client_passages.labels(name).inc(num_passages)

    @contextmanager
    def in_flight(self) -> Iterator[None]:
        """Count a request as long as it is not answered."""
        self._num_in_flight += 1
        try:
            yield
        finally:
            self._num_in_flight -= 1

    def answer(self, answer: Answer) -> None:
        """Count the pairs, the word pieces and the phases of a model's answer."""
        model = answer.model
        self._pairs.labels(model).inc(sum(logit is not None for logit in answer.logits))
        self._tokens.labels(model).inc(answer.num_tokens)
        self._truncated.labels(model).inc(len(answer.cut))
        self._partial.labels(model).inc(answer.partial)
        self._cached.labels(model).inc(answer.num_cached)
        for phase in ("queue", "tokenise", "score"):
            self._phases.labels(phase, model).observe(getattr(answer.timing, phase))

    def counters(self) -> list[tuple[str, str]]:
        """Return the name and the meaning of each counter of this replica."""
        return [(each.name, each.documentation) for each in self._registry.collect() if each.type == "counter"]

    def values(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Return the labels and values of a counter of this replica."""
        found = next(each for each in self._registry.collect() if each.name == name)
        return [(sample.labels, sample.value) for sample in found.samples if not _is_time(sample.name)]

    def figures(self) -> Figures:
        """Return what this replica knows, for the replica that answers a scrape."""
        self._known[self._ingress] = list(self._registry.collect())
        return Figures(self._ingress, dict(self._known), self._num_in_flight)

    def text(self, replicas: Sequence[Figures], loads: Mapping[str, Sequence[Load]]) -> bytes:
        """Return the sums over all ingress replicas, and the loads of each model's, in Prometheus' text format."""
        living = {each.ingress: each for each in (*replicas, self.figures())}
        for each in living.values():
            for ingress, metrics in each.known.items():
                # Counters only increase, so the larger ones are the later ones.
                if _total(metrics) > _total(self._known.get(ingress, [])):
                    self._known[ingress] = metrics
        num_in_flight = sum(each.num_in_flight for each in living.values())
        gauges = [
            GaugeMetricFamily("rayrank_in_flight_requests", "Requests that are being answered", num_in_flight),
            GaugeMetricFamily(
                "rayrank_ingress_replicas", "Replicas of the HTTP ingress that answered this scrape", len(living)
            ),
        ]
        queued = GaugeMetricFamily("rayrank_queued_pairs", "Pairs in the queues of a model", labels=["model"])
        alive = GaugeMetricFamily(
            "rayrank_model_replicas", "Replicas of a model that answered this scrape", labels=["model"]
        )
        for model, own in loads.items():
            queued.add_metric([model], sum(each.num_queued for each in own))
            alive.add_metric([model], len(own))
        return generate_latest(_Registry([*_added(self._known.values()), *gauges, queued, alive]))

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        return Counter(f"rayrank_{name}", meaning, labels, registry=self._registry)

    def _histogram(self, name: str, meaning: str, *labels: str) -> Histogram:
        return Histogram(f"rayrank_{name}", meaning, labels, buckets=SECONDS, registry=self._registry)


class _Registry(CollectorRegistry):
    """Metrics in the form that generate_latest reads."""

    def __init__(self, metrics: list[Metric]) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def _total(metrics: Iterable[Metric]) -> float:
    return sum(sample.value for metric in metrics for sample in metric.samples if not _is_time(sample.name))


def _added(replicas: Iterable[list[Metric]]) -> list[Metric]:
    """Return each metric with the samples of all replicas added up."""
    found: dict[str, Metric] = {}
    sums: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for metric in (metric for metrics in replicas for metric in metrics):
        found.setdefault(metric.name, Metric(metric.name, metric.documentation, metric.type))
        own = sums.setdefault(metric.name, {})
        for sample in metric.samples:
            key = (sample.name, tuple(sample.labels.items()))
            own[key] = own.get(key, 0.0) + sample.value
    for name, metric in found.items():
        for (sample_name, labels), value in sums[name].items():
            if not _is_time(sample_name):
                metric.add_sample(sample_name, dict(labels), value)
    return list(found.values())


def _is_time(sample: str) -> bool:
    """Return whether a sample is the time at which a counter was made."""
    return sample.endswith("_created")
