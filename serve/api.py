"""The HTTP application around a model: the routes of every supported API, the web pages, and errors for other paths."""

from collections.abc import Mapping
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from rayrank.serve.access import Access, write_log
from rayrank.serve.config import HttpConfig, ServeConfig
from rayrank.serve.keys import ApiKeys, Digests
from rayrank.serve.limits import BodyRoom
from rayrank.serve.metrics import Metrics
from rayrank.serve.protocols import documents, inputs, search, server, similarity, tei, vllm
from rayrank.serve.protocols.problems import DetailError, ErrorBody, Problem, SharedError, TeiError
from rayrank.serve.protocols.route import Service, refusal
from rayrank.serve.records import Backend
from rayrank.serve.telemetry import Telemetry

PAGE = Path(__file__).parent / "page"
ROUTERS = (
    tei.router, documents.router, vllm.router, similarity.router, similarity.root_router, inputs.router,
    search.router, server.open_router, server.router,
)  # fmt: skip
ERRORS_BY_PREFIX: dict[str, type[ErrorBody]] = {
    **dict.fromkeys(("/rerank", "/similarity", "/predict", "/tokenize"), TeiError),
    **dict.fromkeys(("/v1/", "/v2/"), SharedError),
}
"""The error format of unknown paths, by the start of the path."""

DOCS = {"docs.html", "docs.css", "docs.js"}
"""Files of the page that describes the routes."""

SHARED = {"style.css", "icon.svg", "server.js"}
"""Files of both pages."""


def create_api(
    backends: Mapping[str, Backend], config: ServeConfig, given: Digests | None = None, num_ingresses: int = 1
) -> FastAPI:
    """Return the application of models by name, the default one first.

    API keys are read here, in the process that checks them, and `given` ones are added; each of `num_ingresses`
    processes grants its share of their limits."""
    api = FastAPI(
        title="rayrank", description="Re-ranks passages for a query, through the APIs of other rerank servers.",
        docs_url=None, redoc_url=None, openapi_url="/openapi.json" if config.http.docs else None,
        # A redirect would name the scheme and host that this process sees: http, behind a proxy that ends TLS.
        redirect_slashes=False,
    )  # fmt: skip
    for status in (404, 405):
        api.add_exception_handler(status, _unrouted)
    metrics = Metrics()
    api.state.telemetry = Telemetry(config.http.otlp, metrics) if config.http.otlp else None
    room = BodyRoom(config.limits.waiting_bytes)
    api.state.service = Service(backends, config, ApiKeys(config, given, num_ingresses), metrics, room)
    for router in ROUTERS:
        api.include_router(router)
    _add_pages(api, config.http)
    if origins := [origin.strip() for origin in config.http.cors.split(",") if origin.strip()]:
        api.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST"], allow_headers=["*"],
            expose_headers=["*"],
        )  # fmt: skip
    # The one that is added last sees a request first.
    api.add_middleware(Access, metrics=metrics, telemetry=api.state.telemetry)
    write_log(config.http.access_log)
    return api


def close(api: FastAPI) -> None:
    """Send the traces and counters that are left of an application which gets no requests any more."""
    if api.state.telemetry:
        api.state.telemetry.close()


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    advice = "/docs lists all routes" if request.app.openapi_url else "check its spelling"
    problem = Problem("missing", f"There is no {path}: {advice}.")
    if error.status_code == 405:
        allowed = _methods(request.app, path)
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": ", ".join([*allowed, "OPTIONS"])})
        names = ", ".join(allowed)
        problem = Problem("method", f"{path} does not support {request.method}: send {names}.", None, {"Allow": names})
    return refusal(problem, errors_of(path))


def errors_of(path: str) -> type[ErrorBody]:
    """Return the error format of a path that no route has."""
    known = (errors for prefix, errors in ERRORS_BY_PREFIX.items() if path.startswith(prefix))
    return next(known, DetailError)


def _methods(api: FastAPI, path: str) -> list[str]:
    """Return the methods of all routes of a path."""
    routes = [*api.routes, *(route for router in ROUTERS for route in router.routes)]
    found = {
        method
        for route in routes
        if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }
    return sorted(found | ({"HEAD"} if "GET" in found else set()))


def _add_pages(api: FastAPI, http: HttpConfig) -> None:
    # One route per file: a folder mounted at the root would also answer requests with a wrong method.
    for file in sorted(PAGE.glob("*.*")):
        is_on = (http.docs and file.name in DOCS | SHARED) or (http.page and file.name not in DOCS)
        if not is_on:
            continue
        path = {"index.html": "/", "docs.html": "/docs"}.get(file.name, f"/{file.name}")

        async def send(request: Request, file: Path = file) -> Response:
            return FileResponse(file)

        api.add_route(path, send, methods=["GET"], include_in_schema=False)
