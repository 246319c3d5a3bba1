"""What Serve's HTTP proxies answer while no ingress replica can: 503 with Retry-After in the API's own error format.

By themselves they answer 404 before the first replica is up, and nothing to the requests of a replica that dies, which
the HTTP server below them makes a bare 500.
Ray calls `middlewares` in every proxy if RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names it where Ray is started.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.middleware import Middleware
from starlette.types import Message, Scope

from rayrank.serve.api import errors_of
from rayrank.serve.protocols.route import refusal
from rayrank.serve.records import Unready

OWN_PATHS = "/-/"
"""Start of the paths that the proxies answer themselves."""


class Unavailable:
    """Replaces the proxy's own answers where a client expects the endpoint's."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Callable[..., Any], send: Callable[..., Awaitable[None]]) -> None:
        if scope["type"] != "http" or scope["path"].startswith(OWN_PATHS):
            await self._app(scope, receive, send)
            return
        has_started = is_replaced = False

        async def check(message: Message) -> None:
            nonlocal has_started, is_replaced
            if message["type"] == "http.response.start":
                is_replaced = _is_of_the_proxy(message)
                has_started = not is_replaced
            if not is_replaced:
                await send(message)

        await self._app(scope, receive, check)
        # A proxy sends nothing at all if the replica has died.
        if not has_started:
            await refusal(Unready(), errors_of(scope["path"]))(scope, receive, send)


def middlewares() -> list[Middleware]:
    """Return what Ray puts around each HTTP proxy."""
    return [Middleware(Unavailable)]


def _is_of_the_proxy(start: Message) -> bool:
    """Whether a response has the status of a proxy that finds no replica, and is not JSON as the endpoint's are.

    A 500 is an application's: a proxy sends nothing in its place."""
    kinds = [value for name, value in start["headers"] if name.lower() == b"content-type"]
    return start["status"] in (404, 503) and not any(kind.startswith(b"application/json") for kind in kinds)
