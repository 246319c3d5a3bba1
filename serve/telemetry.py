"""OpenTelemetry: a trace of every request, and the counters of /metrics, sent to a collector by OTLP over HTTP."""

import os
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rayrank.core.errors import ConfigError
from rayrank.serve.metrics import Metrics

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

    from rayrank.serve.access import Facts

STEPS = ("tokenise", "queue", "score")
"""The steps of a request in a replica of the model, in their order."""

CLOSING_MS = 1_000
"""Milliseconds for the last counters when a replica ends."""

NANO = 1_000_000_000


def check_installed(url: str) -> None:
    """Refuse http.otlp if the exporter is not installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http  # noqa: F401
    except ImportError:
        raise ConfigError(
            f"http.otlp={url} needs OpenTelemetry's exporter: install it with pip install 'rayrank[otel]'."
        ) from None


class Telemetry:
    """Sends the traces and the counters of one ingress replica, from threads of their own.

    OpenTelemetry's environment variables apply, such as OTEL_EXPORTER_OTLP_HEADERS and OTEL_TRACES_SAMPLER.
    """

    def __init__(self, url: str, metrics: Metrics) -> None:
        check_installed(url)
        # Imported here because an endpoint without a collector does not need them.
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        url = url.rstrip("/")
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", "rayrank")})
        self._traces = TracerProvider(resource=resource)
        self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        self._tracer = self._traces.get_tracer("rayrank")
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{url}/v1/metrics"))
        self._meters = MeterProvider([reader], resource)
        meter = self._meters.get_meter("rayrank")
        self._seconds = meter.create_histogram("http.server.request.duration", "s", "From the first byte to the answer")
        for name, meaning in metrics.counters():
            meter.create_observable_counter(name, [_reading(metrics, name)], description=meaning)

    def request(self, scope: Any, route: str, status: int, seconds: float, found: "Facts") -> None:
        """Record an answered request, which ends now."""
        from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        http = {"http.request.method": scope["method"], "http.route": route, "http.response.status_code": status}
        self._seconds.record(seconds, http)
        ended = time.time_ns()
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        span = self._tracer.start_span(
            f"{scope['method']} {route}", TraceContextTextMapPropagator().extract(headers), SpanKind.SERVER,
            {**http, **{f"rayrank.{name}": value for name, value in found.shown().items()}},
            start_time=ended - int(NANO * seconds),
        )  # fmt: skip
        if status >= 500:
            span.set_status(StatusCode.ERROR)
        if found.timing:
            # The replica measures durations only, so the steps are drawn one after another up to the request's end.
            taken = [int(NANO * getattr(found.timing, step)) for step in STEPS]
            for at, step in enumerate(STEPS):
                began = ended - sum(taken[at:])
                self._tracer.start_span(step, set_span_in_context(span), start_time=began).end(began + taken[at])
        span.end(ended)

    def close(self) -> None:
        """Send what is left, and end the threads."""
        self._traces.shutdown()
        self._meters.shutdown(CLOSING_MS)


def _reading(metrics: Metrics, name: str) -> Callable[["CallbackOptions"], Iterable["Observation"]]:
    """Return a function that reads a counter's values."""
    from opentelemetry.metrics import Observation

    return lambda _: [Observation(value, labels) for labels, value in metrics.values(name)]
