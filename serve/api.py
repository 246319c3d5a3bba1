"""The HTTP application around a model: every dialect's routes, the page, and answers to what is none of them."""

from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException

from serve.config import ServeConfig, api_keys
from serve.metrics import Metrics
from serve.protocols import cohere, documents, search, server, tei, vllm
from serve.protocols.problems import CohereError, DetailError, ErrorBody, Problem, SharedError, TeiError
from serve.protocols.route import Service, refusal
from serve.records import Backend

PAGE = Path(__file__).parent / "page"
ROUTERS = (
    tei.router, documents.router, cohere.router, vllm.router, tei.similarity_router,
    search.search_router, search.router, server.open_router, server.router,
)  # fmt: skip
SHAPES: dict[str, type[ErrorBody]] = {
    "/rerank": TeiError, "/similarity": TeiError, "/v1/": SharedError, "/v2/": CohereError,
}  # fmt: skip
"""What errors look like under a path, where no route is there to say so."""


def create_api(backend: Backend, config: ServeConfig) -> FastAPI:
    """Return the application; the keys are read here, where it runs."""
    api = FastAPI(title="rayrank", description="Puts passages in order, in the dialects of other servers.")
    for status in (404, 405):
        api.add_exception_handler(status, _unrouted)
    api.state.service = Service(backend, config, api_keys(config), Metrics())
    for router in ROUTERS:
        api.include_router(router)
    _add_page(api)
    return api


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    problem = Problem("missing", f"There is no {path}: /docs lists what there is.")
    if error.status_code == 405:
        headers = error.headers or {}
        problem = Problem("method", f"{path} is no place for {request.method}: send {headers['Allow']}.", None, headers)
    return refusal(problem, next((shape for start, shape in SHAPES.items() if path.startswith(start)), DetailError))


def _add_page(api: FastAPI) -> None:
    # File by file: mounted at the root, the folder would also answer for routes asked with a wrong method.
    for file in sorted(PAGE.glob("*.*")):
        path = "/" if file.name == "index.html" else f"/{file.name}"

        async def send(request: Request, file: Path = file) -> Response:
            return FileResponse(file)

        api.add_route(path, send, methods=["GET"], include_in_schema=False)
