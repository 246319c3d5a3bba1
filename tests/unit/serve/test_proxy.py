"""Serve's HTTP proxies answer 503 where no replica can, and pass on what applications answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rayrank.serve.proxy import Unavailable

Send = Callable[[Any], Awaitable[None]]


def status_of(answer: tuple[int, bytes] | None) -> int:
    """Return the status of a client whose request gets this status and content type from behind the middleware."""
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Send) -> None:
        if answer:
            start = {"type": "http.response.start", "status": answer[0], "headers": [(b"content-type", answer[1])]}
            await send(start)
            await send({"type": "http.response.body", "body": b"text"})

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Unavailable(app)({"type": "http", "path": "/v1/rerank"}, send, send))
    starts = [message["status"] for message in sent if message["type"] == "http.response.start"]
    assert len(starts) == 1
    return int(starts[0])


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (None, 503), ((404, b"text/plain"), 503), ((503, b"text/plain"), 503),
        ((200, b"text/plain"), 200), ((404, b"application/json"), 404), ((500, b"text/plain"), 500),
    ],
)  # fmt: skip
def test_only_what_a_proxy_answers_by_itself_is_replaced(answer: tuple[int, bytes] | None, status: int) -> None:
    assert status_of(answer) == status
