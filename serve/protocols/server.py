"""Routes about the server: its health, its model and its metrics."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Literal

from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from rayrank.serve.protocols.problems import DetailError
from rayrank.serve.protocols.route import Serving, documented, guarded
from rayrank.serve.records import Overloaded


class Health(BaseModel):
    """The answer of a server that is up."""

    status: Literal["ok"] = "ok"


class Model(BaseModel):
    """A model in the format of OpenAI's model list."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "rayrank"
    max_model_len: int


class Models(BaseModel):
    """A list of the one model."""

    object: Literal["list"] = "list"
    data: list[Model]


class InfoAnswer(BaseModel):
    """Facts about the model; the first fields have the names that text-embeddings-inference uses."""

    model_id: str
    max_input_length: int
    max_client_batch_size: int
    auto_truncate: bool = True
    version: str
    backend: str
    device: str
    query_types: Sequence[str]
    strm: str
    first_stage_weight: float
    calibration: dict[str, Any] | None
    search: bool
    """Whether POST /search is available."""
    load_error: str | None
    """Why the model that was to replace this one could not be loaded."""


BUSY_S = 3.0
"""Seconds after which a model that has not answered counts as busy."""

open_router = guarded(lambda body: DetailError, documented(DetailError, (500, 503)), needs_key=False)
router = guarded(lambda body: DetailError, documented(DetailError, (401, 429, 500, 503)))


@open_router.get("/health", tags=["Server"])
async def health() -> Health:
    """Return 200 if this process answers."""
    return Health()


@open_router.get("/ready", tags=["Server"])
async def ready(service: Serving) -> Health:
    """Return 200 if a model scores, 503 otherwise."""
    # A busy model is ready, too.
    with suppress(Overloaded, TimeoutError):
        async with asyncio.timeout(BUSY_S):
            await service.backend.ready()
    return Health()


@router.get("/info", tags=["Server"])
async def info(service: Serving) -> InfoAnswer:
    """Describe the model."""
    facts, config = asdict(await service.backend.info()), service.config
    return InfoAnswer(
        model_id=facts.pop("model"), max_input_length=facts.pop("length"),
        max_client_batch_size=config.limits.documents, search=bool(config.search.run), **facts,
    )  # fmt: skip


@router.get("/v1/models", tags=["Server"])
async def models(service: Serving) -> Models:
    """List the model in the format of OpenAI's API."""
    facts = await service.backend.info()
    return Models(data=[Model(id=facts.model, created=int(time.time()), max_model_len=facts.length)])


@router.get("/metrics", tags=["Server"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: Serving) -> Response:
    """Return Prometheus metrics: requests, seconds per phase, pairs and word pieces."""
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
