"""Routes about the server: its health, its model and its metrics."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

from fastapi import Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from rayrank.serve.protocols.inputs import LABEL
from rayrank.serve.protocols.problems import DetailError
from rayrank.serve.protocols.route import Service, Serving, documented, guarded, no_model
from rayrank.serve.records import Info


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
    """The models, the default one first."""

    object: Literal["list"] = "list"
    data: list[Model]


class InfinityModel(Model):
    """A model in the format of Infinity's model list."""

    stats: dict[str, int] = {}
    backend: str
    capabilities: list[str] = ["rerank"]


class InfinityModels(BaseModel):
    """The models, as Infinity sends them."""

    object: Literal["list"] = "list"
    data: list[InfinityModel]


class Labels(BaseModel):
    """The classes of a re-ranker at text-embeddings-inference: there is one."""

    id2label: dict[str, str] = {"0": LABEL}
    label2id: dict[str, int] = {LABEL: 0}


class ModelType(BaseModel):
    """The kind of a model at text-embeddings-inference."""

    reranker: Labels = Labels()


class InfoAnswer(BaseModel):
    """Facts about the model; the first fields have the names that text-embeddings-inference uses."""

    model_id: str
    model_sha: str | None = None
    model_dtype: str
    model_type: ModelType = ModelType()
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None = None
    max_client_batch_size: int
    auto_truncate: bool = True
    tokenization_workers: int
    version: str
    backend: str
    device: str
    query_types: Sequence[str]
    strm: str
    first_stage_weight: float
    calibration: dict[str, Any] | None
    fusion: dict[str, Any] | None
    """The features that documents bring in `fields`, with their weights; null if the model has no fusion."""
    precision: dict[str, Any] | None
    """For each wanted precision the threshold of `min_precision`, and what was measured at it."""
    search: bool
    """Whether POST /search is available."""
    explain: bool
    """Whether POST /explain is available."""
    docs: bool
    """Whether /docs and /openapi.json are available."""
    load_error: str | None
    """Why the model that was to replace this one could not be loaded."""
    models: list[str]
    """The names of all models of this server, the default one first."""


open_router = guarded(lambda body: DetailError, documented(DetailError, (404, 500, 503)), needs_key=False)
router = guarded(lambda body: DetailError, documented(DetailError, (401, 404, 429, 500, 503)))


@open_router.get("/health", tags=["Server"])
@open_router.get("/ready", tags=["Server"])
async def ready(service: Serving, model: str | None = None) -> Health:
    """Return 200 if all models score, or the one that is named; 503 otherwise."""
    asked = [service.backend(model)] if model else service.backends.values()
    await asyncio.gather(*(each.ready() for each in asked))
    return Health()


@router.get("/info", tags=["Server"])
async def info(service: Serving, model: str | None = None) -> InfoAnswer:
    """Describe the first model, or the one that is named."""
    backend, config = service.backend(model), service.config
    facts, own = asdict(await backend.info()), config.each().get(backend.name, config)
    return InfoAnswer(
        models=list(service.backends) if len(service.backends) > 1 else [facts["model"]],
        model_id=facts.pop("model"), max_input_length=facts.pop("length"), model_dtype=facts.pop("dtype"),
        max_batch_tokens=facts.pop("batch_tokens"), tokenization_workers=facts.pop("tokenisers"),
        max_concurrent_requests=own.scaling.queued, max_client_batch_size=config.limits.documents,
        search=bool(config.search.run), explain=config.http.explain, docs=config.http.docs,
        **facts,
    )  # fmt: skip


@router.get("/models", tags=["Server"])
async def infinity_models(service: Serving) -> InfinityModels:
    """List the models in the format of Infinity's API."""
    found = await _infos(service)
    return InfinityModels(data=[InfinityModel(**_model(facts), backend=facts.backend) for facts in found])


@router.get("/v1/models", tags=["Server"])
async def models(service: Serving) -> Models:
    """List the models in the format of OpenAI's API."""
    return Models(data=[Model(**_model(facts)) for facts in await _infos(service)])


@router.get("/v1/models/{name:path}", tags=["Server"])
async def model(name: str, service: Serving) -> Model:
    """Describe the model of this name in the format of OpenAI's API."""
    facts = await service.backend(name).info()
    if name != facts.model:
        raise no_model(name, [facts.model])
    return Model(**_model(facts))


async def _infos(service: Service) -> list[Info]:
    """Describe each model that answers; raises Unready if none does."""
    found = await asyncio.gather(*(each.info() for each in service.backends.values()), return_exceptions=True)
    infos = [each for each in found if isinstance(each, Info)]
    if not infos:
        raise next(each for each in found if isinstance(each, BaseException))
    return infos


def _model(facts: Info) -> dict[str, Any]:
    return {"id": facts.model, "created": int(time.time()), "max_model_len": facts.length}


@router.get("/metrics", tags=["Server"], response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(service: Serving) -> Response:
    """Return Prometheus metrics of the whole endpoint: all replicas of the ingress and of each model added up."""
    backends = list(service.backends.values())
    every_load = asyncio.gather(*(each.loads() for each in backends))
    ingresses, loads = await asyncio.gather(backends[0].ingresses(), every_load)
    by_model = {own[0].model if own else each.name: own for each, own in zip(backends, loads, strict=True)}
    return Response(service.metrics.text(ingresses, by_model), media_type=CONTENT_TYPE_LATEST)
