"""What happens around every request, whatever its route: figures, a line of the access log, HEAD, security headers."""

import asyncio
import json
import logging
import sys
import time
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rayrank.serve.metrics import Metrics

if TYPE_CHECKING:
    from rayrank.serve.keys import Client
    from rayrank.serve.records import Timing
    from rayrank.serve.telemetry import Telemetry

POLICY = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
"""The Content-Security-Policy: pages run only this server's scripts and styles, and no other site may frame them."""

HEADERS = [(b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff")]

UNKNOWN = "unknown"
"""The route in the figures of all paths that no route has: a label for each would fill Prometheus' memory."""

STOPPING = "stopping"
"""The route in the figures of requests that were refused because the server is being stopped."""

INSTEAD = "rayrank.instead"
"""Key in the scope of a request whose value, an ASGI application, answers instead of the API."""

DISCONNECTED = 499
"""The status in the figures and the log of a client that leaves before its answer starts."""

MAX_LOGGED = 200
"""Characters of a path or a request's id in the log."""

log = logging.getLogger(__name__)


@dataclass
class Facts:
    """What the handler of a request finds out, for the figures and the log."""

    model: str = ""
    """The model that answers; empty if the request concerns none."""
    client: "Client | None" = None
    """The holder of the request's API key."""
    num_documents: int = 0
    """Documents that were sent to the model."""
    timing: "Timing | None" = None
    """Seconds of the model's steps, if it answered."""

    def shown(self) -> dict[str, str | int]:
        """Return the facts that the log and traces have."""
        names = {"model": self.model, "client": self.client.name if self.client else ""}
        return {"documents": self.num_documents, **{key: name for key, name in names.items() if name}}


_facts: ContextVar[Facts] = ContextVar("facts")


def facts() -> Facts:
    """Return the facts about the current request."""
    return _facts.get()


def write_log(is_on: bool) -> None:
    """Write the access log to standard output, which Ray keeps in the log files of its workers, or stop writing it."""
    if is_on and not log.handlers:
        log.addHandler(logging.StreamHandler(sys.stdout))
        log.propagate = False
    # Not by `disabled`, which any configuration of Python's logging resets.
    log.setLevel(logging.INFO if is_on else logging.WARNING)


class Access:
    """Counts, traces and logs requests, answers HEAD as GET without the body, and adds security headers."""

    def __init__(self, app: ASGIApp, metrics: Metrics, telemetry: "Telemetry | None" = None) -> None:
        self._app, self._metrics, self._telemetry = app, metrics, telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, started, status = scope["method"], time.perf_counter(), 0
        scope = {**scope, "method": "GET" if method == "HEAD" else method}

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), *HEADERS]}
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        found = Facts()
        _facts.set(found)
        try:
            with self._metrics.in_flight():
                await scope.get(INSTEAD, self._app)(scope, receive, watch)
        except asyncio.CancelledError:
            status = status or DISCONNECTED
            raise
        finally:
            status = status or 500
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", STOPPING if INSTEAD in scope else UNKNOWN)
            self._metrics.request(route, status, seconds, found.model)
            if found.client:
                self._metrics.client(found.client.name, status, found.num_documents)
            if self._telemetry:
                self._telemetry.request({**scope, "method": method}, route, status, seconds, found)
            if log.isEnabledFor(logging.INFO):
                log.info(_line({**scope, "method": method}, status, seconds, found))


def _line(scope: Scope, status: int, seconds: float, found: Facts) -> str:
    # Ray Serve gives an id to a request without one, and returns the id in the response.
    id_ = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"").decode("latin-1")
    line: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"), "id": id_[:MAX_LOGGED],
        "method": scope["method"], "path": scope["path"][:MAX_LOGGED], "status": status,
        "ms": round(1000 * seconds, 1), **found.shown(),
    }  # fmt: skip
    return json.dumps(line)
