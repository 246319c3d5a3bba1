"""Stopping without losing requests: the ingress refuses new requests, and the server waits for those in flight.

The process that stops the server writes a notice into the key-value store of Ray's head node, and every ingress replica
looks for it. Serve itself has no such step: it kills its HTTP proxies first, and with them all open connections.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from ray import serve
from ray.experimental.internal_kv import (
    _internal_kv_del,
    _internal_kv_get,
    _internal_kv_list,
    _internal_kv_put,
)
from starlette.types import Scope

from rayrank.serve.access import INSTEAD
from rayrank.serve.api import errors_of
from rayrank.serve.deployments import INGRESS
from rayrank.serve.protocols.problems import Problem
from rayrank.serve.protocols.route import refusal

PERIOD_S = 0.25
"""Seconds between two checks for the notice."""

NOTICED_S = 4 * PERIOD_S
"""Seconds in which all ingress replicas read the notice. A shorter wait would count idle ones as having requests."""

LAST_BYTES_S = 0.5
"""Seconds in which the HTTP proxies pass on the last answers."""

NOTICE = b"rayrank-stop"
"""Key of the notice; its value is the time at which it expires, in case the process that wrote it has died."""

IN_FLIGHT = b"rayrank-in-flight-"
"""Start of the keys under which ingress replicas that have read the notice write the number of their requests."""

STILL_ANSWERED = {"/health", "/metrics"}
"""Paths that a stopping server answers, because they tell how it is."""

STOPPING = Problem(
    "unready", "The server is being stopped: send the request again in some seconds.",
    headers={"Retry-After": "5", "Connection": "close"},
)  # fmt: skip

log = logging.getLogger(__name__)


class Gate:
    """The ASGI application of an ingress replica: it counts requests, and refuses new ones when the server stops."""

    def __init__(self) -> None:
        self.app: Any = None
        self._key = IN_FLIGHT + uuid4().hex.encode()
        self._num_requests = 0
        self._is_stopping = False

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Awaitable[Any]]) -> None:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._is_stopping and path not in STILL_ANSWERED:
            # Through the application, which counts and logs the refusal as any other answer.
            await self.app({**scope, INSTEAD: refusal(STOPPING, errors_of(path))}, receive, send)
            return
        self._num_requests += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._num_requests -= 1

    async def watch(self) -> None:
        """Look for the notice again and again, and report the requests in flight while there is one."""
        while True:
            try:
                self._is_stopping = await asyncio.to_thread(_has_notice)
                if self._is_stopping:
                    await asyncio.to_thread(_internal_kv_put, self._key, str(self._num_requests).encode(), True)
            except Exception as error:  # Ray raises many types of exceptions while its head node does not answer
                log.warning("The notice of a stop cannot be read: %s", error)
            await asyncio.sleep(PERIOD_S)


def drain(seconds: float) -> int:
    """Have new requests refused, wait up to `seconds` for those in flight, and return the number of those left."""
    end = time.monotonic() + max(seconds, NOTICED_S)
    forget()
    _internal_kv_put(NOTICE, str(time.time() + seconds + 60).encode(), True)
    while (left := _in_flight()) and time.monotonic() < end:
        time.sleep(0.1)
    time.sleep(LAST_BYTES_S)
    return left


def stop(seconds: float) -> int:
    """Drain the server, then end Serve; return the number of requests that were cut off."""
    try:
        left = drain(seconds)
        serve.shutdown()  # type: ignore[no-untyped-call]
    finally:
        forget()
    return left


def _has_notice() -> bool:
    found = _internal_kv_get(NOTICE)
    return found is not None and float(found) > time.time()


def _in_flight() -> int:
    """Return the requests in flight; a replica that has not read the notice yet counts as one."""
    reports = [int(_internal_kv_get(key) or 0) for key in _internal_kv_list(IN_FLIGHT)]
    states = [
        deployment.replica_states
        for application in serve.status().applications.values()
        for name, deployment in application.deployments.items()
        if name == INGRESS
    ]
    running = sum(count for each in states for state, count in each.items() if state == "RUNNING")
    return sum(reports) + max(0, running - len(reports))


def forget() -> None:
    """Remove the notice and the reports, also those of a process that was ended while it stopped a server."""
    for key in [NOTICE, *_internal_kv_list(IN_FLIGHT)]:
        _internal_kv_del(key)
