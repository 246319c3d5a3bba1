"""The way of every request: key, limits, JSON, then its dialect; and whatever goes wrong, in that dialect's shape."""

import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.requests import ClientDisconnect

from serve.config import ServeConfig
from serve.limits import check_key, check_lists, read_json
from serve.metrics import Metrics
from serve.protocols.problems import ErrorBody, problem_of
from serve.records import Answer, Ask, Backend

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Shape = Callable[[Any], type[ErrorBody]]
"""Which errors a dialect uses; asked with the body, or None while that is not read."""

DESCRIPTIONS = {
    400: "The body is not JSON, or there is nothing to rank",
    401: "The API key is missing or wrong",
    404: "Not offered by this server",
    408: "The body came too slowly",
    413: "The body is too large, or has too many documents",
    415: "The body is not application/json",
    422: "A field is wrong; the message names it",
    424: "A fault of the server, where text-embeddings-inference says so",
    429: "The queue is full; Retry-After says when to ask again",
    500: "A fault of the server",
    503: "No model is ready",
}
READS = (400, 401, 408, 413, 415, 422, 429, 500, 503)
"""Statuses of every route with a body."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """What the routes of an application share."""

    backend: Backend
    config: ServeConfig
    keys: tuple[str, ...]
    metrics: Metrics

    async def rerank(self, ask: Ask) -> Answer:
        """Return the model's answer, counted."""
        answer = await self.backend.rerank(ask)
        self.metrics.answer(answer)
        return answer


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


class ReadRequest(Request):
    """A request whose body has been read, within the limits."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def body(self) -> bytes:
        return b"read"

    async def json(self) -> Any:
        return self._value


def guarded(shape: Shape, statuses: dict[int | str, Any], needs_key: bool = True) -> APIRouter:
    """Return a router of routes that all go this way; `statuses` document the errors."""

    class GuardedRoute(APIRoute):
        """A route that checks before it reads."""

        def get_route_handler(self) -> Handler:
            handle, path, reads = super().get_route_handler(), self.path, "POST" in (self.methods or ())

            async def guard(request: Request) -> Response:
                started, value = time.perf_counter(), None
                service = await _service(request)
                limits = service.config.limits
                try:
                    if needs_key:
                        check_key(request, service.keys)
                    if reads:
                        value = await read_json(request, limits.body_bytes)
                        check_lists(value, limits.documents)
                        request = ReadRequest(request, value)
                    response = await handle(request)
                except ClientDisconnect:
                    response = Response(status_code=499)
                except Exception as error:
                    response = refusal(error, shape(value))
                service.metrics.request(path, response.status_code, time.perf_counter() - started)
                return response

            return guard

    # The scheme only documents: the key is checked before the body is read, which dependencies are not.
    key = [Depends(HTTPBearer(auto_error=False, description="A key, if the server asks for one."))] if needs_key else []
    return APIRouter(route_class=GuardedRoute, responses=statuses, dependencies=key)


def refusal(error: Exception, errors: type[ErrorBody]) -> Response:
    """Return what a dialect answers in an exception's place."""
    problem = problem_of(error)
    if problem.kind == "failed":
        log.error("A request failed.", exc_info=error)
    body = errors.of(problem).model_dump(mode="json")
    return JSONResponse(body, errors.statuses[problem.kind], problem.headers)


def documented(model: Any, statuses: Sequence[int] = READS) -> dict[int | str, Any]:
    """Return the statuses that a route may answer with, and the shape they come in."""
    return {status: {"model": model, "description": DESCRIPTIONS[status]} for status in statuses}
