"""The Serve application: `rayrank serve --model DIR`, or `serve run rayrank.serve.app:build model=DIR`."""

import asyncio
import math
import os
from collections.abc import Awaitable, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import click
import ray
from ray import serve
from ray.serve.config import AutoscalingConfig

from rayrank.core.errors import RayrankError
from rayrank.serve.config import KEYS, SearchConfig, ServeConfig, api_keys, read
from rayrank.serve.records import Answer, Ask, Figures, Hit, Info, Load, Overloaded, Piece
from rayrank.serve.remote import Handle, Remote

if TYPE_CHECKING:
    from rayrank.serve.model import ServedModel

INGRESS_REQUESTS = 4096
"""Concurrent requests of an ingress replica. The limit is so high that the model's queue refuses requests before it."""

HEALTH_S = 2
"""Seconds between two health checks of a replica, and thus until Serve replaces a dead one."""

SURGE_PERCENT = 25
"""Percentage of the replicas, at least one, that Serve starts before it stops old ones; the cluster needs room for
them."""

DRAIN_S = 60
"""Seconds that a replica which is being replaced has to answer its ongoing requests."""

REPLICAS: dict[str, Any] = {
    "health_check_period_s": HEALTH_S,
    "graceful_shutdown_timeout_s": DRAIN_S,
    "max_surge_percent": SURGE_PERCENT,
    "logging_config": {"enable_access_log": False},
}

ONGOING_PER_TARGET = 8
"""With autoscaling, a replica accepts this many times the target of ongoing requests. The other requests wait outside,
where new replicas can take them."""

ONGOING_WITHOUT_AUTOSCALING = 256
"""Ongoing requests of a replica without autoscaling: its own queue shares the scorer fairly among them."""

MODEL_SETTINGS = {"model", "previous", "backend", "name", "batching", "long_documents", "resources"}
"""Settings that a replica of the model uses, or needs to validate these: torch-fp8 is refused without GPUs."""

Message = MutableMapping[str, Any]


class Channel(Protocol):
    """`receive` or `send` of an ASGI connection."""

    def __call__(self, *message: Message) -> Awaitable[Any]: ...


class Ranker:
    """A replica of the model. Its user_config names the exported folder, and Serve can change it without a restart."""

    def __init__(self) -> None:
        self._model: ServedModel | None = None

    async def reconfigure(self, settings: dict[str, Any]) -> None:
        """Load the model that the settings name, then replace the current model by it."""
        # Imported here because it loads torch, which the other deployments do not need.
        import torch

        from rayrank.serve.model import ServedModel

        # One thread per assigned core. Ray also sets OMP_NUM_THREADS, but not if its launcher has set it before.
        # Without a running Ray, get_runtime_context would start one.
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id():
            assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
            torch.set_num_threads(max(1, int(assigned.get("CPU", 1))))
        # In a thread: the event loop still answers requests with the old model.
        fresh = await asyncio.to_thread(ServedModel, ServeConfig.model_validate(settings))
        old, self._model = self._model, fresh
        if old is not None:
            await old.close()

    async def rerank(self, ask: Ask) -> Answer | Overloaded | RayrankError:
        """Return the answer, or the refusal as a value, because Ray logs a traceback for every exception."""
        try:
            return await self.model.rerank(ask)
        except (Overloaded, RayrankError) as refusal:
            return refusal

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any] | Overloaded:
        try:
            return await self.model.explain(query, passage, query_type)
        except Overloaded as refusal:
            return refusal

    async def info(self) -> Info:
        return await self.model.info()

    async def load(self) -> Load:
        return self.model.load()

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        return await self.model.tokenise(texts, with_special)

    def check_health(self) -> None:
        """Raise an error if Serve has to replace this replica."""
        self.model.check()

    @property
    def model(self) -> "ServedModel":
        """The current model; Serve sends no requests before `reconfigure` has loaded one."""
        assert self._model is not None
        return self._model


class Search:
    """A replica of the first stage."""

    def __init__(self, settings: dict[str, Any]) -> None:
        from rayrank.serve.search import RunSearch

        self._find = RunSearch(SearchConfig.model_validate(settings))

    async def search(self, query: str, depth: int) -> list[Hit]:
        return await asyncio.to_thread(self._find, query, depth)


class Api:
    """A replica of the HTTP ingress. Its settings are its user_config, so that changing them closes no connection."""

    def __init__(self, ranker: Handle, search: Handle | None = None) -> None:
        self._handles = ranker, search
        self._app: Any = None

    async def reconfigure(self, settings: dict[str, Any]) -> None:
        """Replace the HTTP application by one with these settings."""
        from rayrank.serve.api import create_api

        config = ServeConfig.model_validate(settings)
        self._app = create_api(Remote(*self._handles, config.name, config.scaling.patience_s), config)

    async def figures(self) -> Figures:
        """Return the metrics of this replica, for the one that answers a scrape."""
        figures: Figures = self._app.state.service.metrics.figures()
        return figures

    def __serve_build_asgi_app__(self) -> Any:
        async def forward(scope: Message, receive: Channel, send: Channel) -> None:
            # The server's startup event arrives before the settings, and the application does not use it.
            if scope["type"] != "lifespan":
                await self._app(scope, receive, send)

        return forward


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application; a wrong setting raises a one-line error before anything is started."""
    try:
        config = read(arguments)
        _check(config)
    except RayrankError as error:
        # Serve's command line prints a ClickException without a traceback.
        raise click.ClickException(str(error)) from None
    settings = config.model_dump(mode="json")
    # Bound to the search settings only: a change of a bound setting restarts the replica, which writes all texts anew.
    search = _search(config).bind(settings["search"]) if config.search.run else None
    return _api(config, settings).bind(_ranker(config).bind(), search)


def _check(config: ServeConfig) -> None:
    """Open the model, the keys and the first stage once, so that errors appear here instead of in a replica's log."""
    from rayrank.bundle.export import load
    from rayrank.serve.first_stages import open_run

    load(config.model, config.backend)
    api_keys(config)
    if config.search.run:
        open_run(config.search.run)


def _ranker(config: ServeConfig) -> serve.Deployment:
    scaling = config.scaling
    autoscales = scaling.max > scaling.min
    ongoing = math.ceil(ONGOING_PER_TARGET * scaling.target) if autoscales else ONGOING_WITHOUT_AUTOSCALING
    return serve.deployment(
        name="Ranker",
        user_config=config.model_dump(mode="json", include=MODEL_SETTINGS),
        ray_actor_options={"num_cpus": config.resources.cpus, "num_gpus": config.resources.gpus},
        max_ongoing_requests=scaling.most or ongoing,
        max_queued_requests=scaling.queued,
        autoscaling_config=AutoscalingConfig(
            min_replicas=scaling.min,
            max_replicas=scaling.max,
            target_ongoing_requests=scaling.target,
            upscale_delay_s=scaling.upscale_delay_s,
            downscale_delay_s=scaling.downscale_delay_s,
            # Serve's defaults, 10 and 30 seconds, are longer than upscale_delay_s. Ray deprecates metrics_interval_s in
            # favour of an environment variable of the whole cluster, which would affect other applications too.
            metrics_interval_s=0.5,
            look_back_period_s=2,
        ),
        **REPLICAS,
    )(Ranker)


def _search(config: ServeConfig) -> serve.Deployment:
    return serve.deployment(
        name="Search",
        ray_actor_options={"num_cpus": config.search.cpus},
        max_queued_requests=config.scaling.queued,
        **REPLICAS,
    )(Search)


def _api(config: ServeConfig, settings: dict[str, Any]) -> serve.Deployment:
    # Passes the keys on to a cluster that was started without them.
    keys = {KEYS: os.environ[KEYS]} if os.environ.get(KEYS) else {}
    return serve.deployment(
        name="Api",
        user_config=settings,
        num_replicas=config.resources.ingress,
        ray_actor_options={"num_cpus": config.resources.ingress_cpus, "runtime_env": {"env_vars": keys}},
        max_ongoing_requests=INGRESS_REQUESTS,
        **REPLICAS,
    )(serve.ingress()(Api))
