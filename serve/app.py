"""The Serve application: `serve run serve.app:build model=DIR`."""

import asyncio
import math
import os
from collections.abc import Awaitable, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

import click
import ray
from ray import serve
from ray.serve.config import AutoscalingConfig

from rayrank.core.errors import RayrankError
from serve.config import KEYS, SearchConfig, ServeConfig, api_keys, read
from serve.records import Answer, Ask, Hit, Info, Overloaded
from serve.remote import Handle, Remote

if TYPE_CHECKING:
    from serve.model import ServedModel

INGRESS_REQUESTS = 4096
"""Requests in the hands of an ingress replica; it is the model's queue that refuses more."""

HEALTH_S = 2
"""How often Serve asks a replica for its health, in seconds: a dead one is replaced that soon."""

SURGE_PERCENT = 25
"""Of the replicas, one at least, that Serve starts before it stops old ones: there must be room for one more."""

DRAIN_S = 60
"""What a replica that is replaced may still take for the requests in its hands, in seconds."""

REPLICAS: dict[str, Any] = {
    "health_check_period_s": HEALTH_S,
    "graceful_shutdown_timeout_s": DRAIN_S,
    "max_surge_percent": SURGE_PERCENT,
    "logging_config": {"enable_access_log": False},
}

IN_HAND, IN_LONE_HANDS = 8, 256
"""Times the target that a replica has in its hands at most where others may come: what waits for free hands instead can
go to them. Where no others come, requests wait in its hands, which share it fairly."""

OF_MODEL = {"model", "previous", "backend", "name", "batching"}
"""What a replica of the model reads of the settings."""

Message = MutableMapping[str, Any]


class Channel(Protocol):
    """A side of an ASGI connection."""

    def __call__(self, *message: Message) -> Awaitable[Any]: ...


class Ranker:
    """A replica of the model. The folder is in its user_config: a new one is opened before the old one goes."""

    def __init__(self) -> None:
        self._model: ServedModel | None = None

    async def reconfigure(self, settings: dict[str, Any]) -> None:
        """Answer with the model that the settings name from now on."""
        # With torch behind it, so not where the application is only put together.
        import torch

        from serve.model import ServedModel

        # Ray says so by an environment variable as well, but not where its launcher has set that already.
        # Asking for a context would start a Ray where there is none.
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id():
            assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
            torch.set_num_threads(max(1, int(assigned.get("CPU", 1))))
        # Off the event loop, where requests are still being answered.
        fresh = await asyncio.to_thread(ServedModel, ServeConfig.model_validate(settings))
        old, self._model = self._model, fresh
        if old is not None:
            await old.close()

    async def rerank(self, ask: Ask) -> Answer | Overloaded:
        """Return scores and order; an exception would be logged and carried with its traceback, under full load."""
        try:
            return await self.model.rerank(ask)
        except Overloaded as refusal:
            return refusal

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any] | Overloaded:
        try:
            return await self.model.explain(query, passage, query_type)
        except Overloaded as refusal:
            return refusal

    async def info(self) -> Info:
        return await self.model.info()

    def check_health(self) -> None:
        """Raise if Serve shall replace this replica."""
        self.model.check()

    @property
    def model(self) -> "ServedModel":
        """The model that answers; Serve sends nothing before there is one."""
        assert self._model is not None
        return self._model


class Search:
    """A replica of the first stage."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from serve.search import Finder

        self._find = Finder(SearchConfig.model_validate(settings))

    async def search(self, query: str, depth: int) -> list[Hit]:
        return await asyncio.to_thread(self._find, query, depth)


class Api:
    """A replica that speaks HTTP. Its settings are its user_config: changing them breaks no connection."""

    def __init__(self, ranker: Handle, search: Handle | None = None) -> None:
        self._handles = ranker, search
        self._app: Any = None

    async def reconfigure(self, settings: dict[str, Any]) -> None:
        """Speak by these settings from now on."""
        from serve.api import create_api

        config = ServeConfig.model_validate(settings)
        self._app = create_api(Remote(*self._handles, config.name, config.scaling.patience_s), config)

    def __serve_build_asgi_app__(self) -> Any:
        async def forward(scope: Message, receive: Channel, send: Channel) -> None:
            # The start of a server comes before the settings do, and means nothing to the API.
            if scope["type"] != "lifespan":
                await self._app(scope, receive, send)

        return forward


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application, or one sentence that says what is wrong, before anything is started."""
    try:
        config = read(arguments)
        _check(config)
    except RayrankError as error:
        # Serve's command line shows such an exception without a traceback.
        raise click.ClickException(str(error)) from None
    settings = config.model_dump(mode="json")
    # Only what it reads: with other settings it would start again, and write all texts again.
    search = _search(config).bind(settings["search"]) if config.search.index else None
    return _api(config, settings).bind(_ranker(config).bind(), search)


def _check(config: ServeConfig) -> None:
    """Open everything once that a replica would stumble over."""
    from rayrank.bundle.export import load
    from serve.search import open_index

    load(config.model, config.backend)
    api_keys(config)
    if config.search.index:
        open_index(config.search.index)


def _ranker(config: ServeConfig) -> serve.Deployment:
    scaling = config.scaling
    in_hand = math.ceil(IN_HAND * scaling.target) if scaling.max > scaling.min else IN_LONE_HANDS
    return serve.deployment(
        name="Ranker",
        user_config=config.model_dump(mode="json", include=OF_MODEL),
        ray_actor_options={"num_cpus": config.resources.cpus, "num_gpus": config.resources.gpus},
        max_ongoing_requests=scaling.most or in_hand,
        max_queued_requests=scaling.queued,
        autoscaling_config=AutoscalingConfig(
            min_replicas=scaling.min,
            max_replicas=scaling.max,
            target_ongoing_requests=scaling.target,
            upscale_delay_s=scaling.upscale_delay_s,
            downscale_delay_s=scaling.downscale_delay_s,
            # Serve's own, 10 and 30 seconds, are longer than the delay that is asked for. The first is to become an
            # environment variable of the whole cluster, which is no place for it.
            metrics_interval_s=0.5,
            look_back_period_s=2,
        ),
        **REPLICAS,
    )(Ranker)


def _search(config: ServeConfig) -> serve.Deployment:
    return serve.deployment(
        name="Search", ray_actor_options={"num_cpus": 0}, max_queued_requests=config.scaling.queued, **REPLICAS
    )(Search)


def _api(config: ServeConfig, settings: dict[str, Any]) -> serve.Deployment:
    # Keys of whoever starts the application must reach a cluster that was started without them.
    keys = {KEYS: os.environ[KEYS]} if os.environ.get(KEYS) else {}
    return serve.deployment(
        name="Api",
        user_config=settings,
        num_replicas=config.resources.ingress,
        ray_actor_options={"num_cpus": config.resources.ingress_cpus, "runtime_env": {"env_vars": keys}},
        max_ongoing_requests=INGRESS_REQUESTS,
        **REPLICAS,
    )(serve.ingress()(Api))
