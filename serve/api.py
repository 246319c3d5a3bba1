"""The HTTP application around a model: the routes of every supported API, the web page, and errors for other paths."""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

from rayrank.serve.config import ServeConfig
from rayrank.serve.keys import ApiKeys, Digests
from rayrank.serve.limits import BodyRoom
from rayrank.serve.metrics import Metrics
from rayrank.serve.protocols import cohere, documents, search, server, tei, vllm
from rayrank.serve.protocols.problems import CohereError, DetailError, ErrorBody, Problem, SharedError, TeiError
from rayrank.serve.protocols.route import Service, refusal
from rayrank.serve.records import Backend

PAGE = Path(__file__).parent / "page"
ROUTERS = (
    tei.router, documents.router, cohere.router, vllm.router, tei.similarity_router,
    search.search_router, search.router, server.open_router, server.router,
)  # fmt: skip
ERRORS_BY_PREFIX: dict[str, type[ErrorBody]] = {
    "/rerank": TeiError, "/similarity": TeiError, "/v1/": SharedError, "/v2/": CohereError,
}  # fmt: skip
"""The error format of unknown paths, by the start of the path."""


def create_api(backend: Backend, config: ServeConfig, given: Digests | None = None) -> FastAPI:
    """Return the application. API keys are read here, in the process that checks them, and `given` ones are added."""
    api = FastAPI(
        title="rayrank", description="Re-ranks passages for a query, through the APIs of other rerank servers."
    )
    for status in (404, 405):
        api.add_exception_handler(status, _unrouted)
    api.state.service = Service(
        backend, config, ApiKeys(config, given), Metrics(), BodyRoom(config.limits.waiting_bytes)
    )
    for router in ROUTERS:
        api.include_router(router)
    _add_page(api)
    return api


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    problem = Problem("missing", f"There is no {path}: /docs lists all routes.")
    if error.status_code == 405:
        headers = error.headers or {}
        problem = Problem(
            "method", f"{path} does not support {request.method}: send {headers['Allow']}.", None, headers
        )
    return refusal(problem, errors_of(path))


def errors_of(path: str) -> type[ErrorBody]:
    """Return the error format of a path that no route has."""
    known = (errors for prefix, errors in ERRORS_BY_PREFIX.items() if path.startswith(prefix))
    return next(known, DetailError)


def _add_page(api: FastAPI) -> None:
    # One route per file: a folder mounted at the root would also answer requests with a wrong method.
    for file in sorted(PAGE.glob("*.*")):
        path = "/" if file.name == "index.html" else f"/{file.name}"

        async def send(request: Request, file: Path = file) -> Response:
            return FileResponse(file)

        api.add_route(path, send, methods=["GET"], include_in_schema=False)
