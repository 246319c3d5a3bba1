"""Routes that check the API key, the limits and the JSON of a request before they handle it, and format its errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.requests import ClientDisconnect

from rayrank.serve.access import facts
from rayrank.serve.config import ServeConfig
from rayrank.serve.keys import ApiKeys
from rayrank.serve.limits import BodyRoom, charge, charged, check_key, check_lists, read_json
from rayrank.serve.metrics import Metrics
from rayrank.serve.protocols.problems import ErrorBody, Problem, problem_of
from rayrank.serve.records import Answer, Ask, Backend, TimedOut

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
ErrorFormat = Callable[[Any], type[ErrorBody]]
"""Chooses the error format of an API from the parsed body, which is None before it is read."""

DESCRIPTIONS = {
    400: "The body is not JSON, or the list of texts is empty",
    401: "The API key is missing or wrong",
    404: "Not offered by this server, or no model of this name",
    408: "The body arrived too slowly",
    413: "The body is too large, or has too many documents",
    415: "The body is not application/json",
    422: "A field is wrong; the message names it",
    424: "A fault of the server, as text-embeddings-inference reports it",
    429: "The server is busy; Retry-After is the number of seconds to wait",
    500: "A fault of the server",
    503: "No model is ready",
}
BODY_STATUSES = (400, 401, 404, 408, 413, 415, 422, 429, 500, 503)
"""Error statuses of every route that reads a body."""

MAX_NAME = 80
"""Characters of a model's name that a message quotes."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Service:
    """The objects that all routes of an application share."""

    backends: Mapping[str, Backend]
    """The models by name, the default one first."""
    config: ServeConfig
    keys: ApiKeys
    metrics: Metrics
    room: BodyRoom

    def backend(self, name: str | None = None) -> Backend:
        """Return the model of a name, or the default one without a name; a single model answers to every name."""
        found = next(iter(self.backends.values()))
        if name and len(self.backends) > 1:
            if name not in self.backends:
                raise no_model(name, list(self.backends))
            found = self.backends[name]
        facts().model = found.name
        return found

    async def rerank(self, ask: Ask) -> Answer:
        """Return the model's answer, and count it in the metrics; the passages count for the client's limit."""
        self.backend(ask.model)  # a wrong name is refused before anything is charged
        with charged(len(ask.passages)):
            return await self.answer(ask)

    async def answer(self, ask: Ask) -> Answer:
        """Return the model's answer, and count it in the metrics."""
        answer = await self.backend(ask.model).rerank(ask)
        self.metrics.answer(answer)
        facts().model, facts().timing = answer.model, answer.timing
        facts().num_documents += len(ask.passages)
        return answer


def no_model(name: str, known: Sequence[str]) -> Problem:
    """Return the refusal of a name that no model has."""
    message = f"There is no model {name[:MAX_NAME]}: this server has {', '.join(known)}."
    return Problem("no_model", message, "model")


async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(_service)]


class ReadRequest(Request):
    """A request whose body was already read and parsed."""

    def __init__(self, request: Request, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._value = value

    async def body(self) -> bytes:
        return b"read"

    async def json(self) -> Any:
        return self._value


def guarded(error_format: ErrorFormat, statuses: dict[int | str, Any], needs_key: bool = True) -> APIRouter:
    """Return a router whose routes check requests before they handle them; `statuses` documents the errors."""

    class GuardedRoute(APIRoute):
        """A route that checks the key before it reads the body."""

        def get_route_handler(self) -> Handler:
            handle, has_body = super().get_route_handler(), "POST" in (self.methods or ())

            async def guard(request: Request) -> Response:
                service, value = await _service(request), None
                limits = service.config.limits
                try:
                    if needs_key:
                        check_key(request, service.keys)
                    if has_body:
                        charge("requests", 1)
                    with service.room.share() as take:
                        if has_body:
                            value = await read_json(request, limits.body_bytes, take)
                            check_lists(value, limits.documents)
                            request = ReadRequest(request, value)
                        return await _in_time(handle(request), limits.request_s)
                except ClientDisconnect:
                    return Response(status_code=499)
                except Exception as error:
                    client = facts().client
                    return refusal(error, error_format(value), client.name if client else "")

            return guard

    # For the documentation only: FastAPI's dependencies run after the body is read, but the key is checked before.
    key = [Depends(HTTPBearer(auto_error=False, description="A key, if the server requires one."))] if needs_key else []
    return APIRouter(route_class=GuardedRoute, responses=statuses, dependencies=key)


async def _in_time(answer: Awaitable[Response], seconds: float) -> Response:
    """Return the response, or raise TimedOut."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await answer
    except TimeoutError:
        if not limit.expired():
            raise
        raise TimedOut(seconds) from None


def refusal(error: Exception, errors: type[ErrorBody], client: str = "") -> Response:
    """Return the response to a request that raised an exception; the log has the name of the client's key."""
    problem = problem_of(error)
    who = f" of {client}" if client else ""
    if problem.kind == "failed":
        log.error("A request%s failed.", who, exc_info=error)
    elif problem.kind == "overloaded":
        log.info("A request%s was refused: %s", who, problem.message)
    body = errors.of(problem).model_dump(mode="json")
    return JSONResponse(body, errors.statuses[problem.kind], problem.headers)


def documented(model: Any, statuses: Sequence[int] = BODY_STATUSES) -> dict[int | str, Any]:
    """Return the error statuses of a route and the model of their body, for the OpenAPI document."""
    return {status: {"model": model, "description": DESCRIPTIONS[status]} for status in statuses}
