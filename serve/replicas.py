"""The deployments' replicas: the model, the first stage, and the HTTP ingress in front of them."""

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import ray
from starlette.types import Message, Scope

from rayrank.cluster.gpus import hide_without_reservation
from rayrank.core.errors import RayrankError
from rayrank.serve.config import SearchConfig, ServeConfig
from rayrank.serve.draining import Gate
from rayrank.serve.records import Answer, Ask, Figures, Hit, Info, Load, Overloaded, Piece
from rayrank.serve.remote import Handle, Remote

if TYPE_CHECKING:
    from rayrank.serve.model import ServedModel

log = logging.getLogger(__name__)


class Channel(Protocol):
    """`receive` or `send` of an ASGI connection."""

    def __call__(self, *message: Message) -> Awaitable[Any]: ...


class Ranker:
    """A replica of the model. Its user_config names the exported folder, and Serve can change it without a restart."""

    def __init__(self) -> None:
        hide_without_reservation()
        self._model: ServedModel | None = None
        self._load_error: str | None = None

    async def reconfigure(self, settings: dict[str, Any]) -> None:
        """Replace the current model by the one that the settings name, once it is loaded, or keep it if that fails."""
        # Only `rayrank promote --back` reads `previous`: a change of it must not load the model anew.
        config = ServeConfig.model_validate({**settings, "previous": ""})
        # Serve also calls this when only the rank of the replica has changed.
        if self._model is not None and config == self._model.config:
            self._load_error = None
            return
        try:
            fresh = await self._load(config)
        except Exception as error:
            # Serve would end this replica, and the model that it serves, and start others that fail in the same way.
            if self._model is None:
                raise
            self._load_error = str(error).strip().split("\n")[0] or type(error).__name__
            known = isinstance(error, RayrankError)
            log.error("%s stays: %s", self._model.config.model, self._load_error, exc_info=not known)
            return
        old, self._model, self._load_error = self._model, fresh, None
        if old is not None:
            await old.close()

    async def _load(self, config: ServeConfig) -> "ServedModel":
        # Imported here because it loads torch, which the other deployments do not need.
        import torch

        from rayrank.serve.model import ServedModel

        # One thread per assigned core. Ray also sets OMP_NUM_THREADS, but not if its launcher has set it before.
        # Without a running Ray, get_runtime_context would start one.
        if ray.is_initialized() and ray.get_runtime_context().get_actor_id():
            assigned = ray.get_runtime_context().get_assigned_resources()  # type: ignore[no-untyped-call]
            torch.set_num_threads(max(1, int(assigned.get("CPU", 1))))
        # In a thread: the event loop still answers requests with the old model.
        return await asyncio.to_thread(ServedModel, config)

    async def rerank(self, ask: Ask) -> Answer | Overloaded | RayrankError:
        """Return the answer, or the refusal as a value, because Ray logs a traceback for every exception."""
        try:
            return await self.model.rerank(ask)
        except (Overloaded, RayrankError) as refusal:
            return refusal

    async def explain(
        self, query: str, passage: str, query_type: str | None
    ) -> dict[str, Any] | Overloaded | RayrankError:
        try:
            return await self.model.explain(query, passage, query_type)
        except (Overloaded, RayrankError) as refusal:
            return refusal

    async def info(self) -> Info:
        return replace(await self.model.info(), load_error=self._load_error)

    async def load(self) -> Load:
        return self.model.load()

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        return await self.model.tokenise(texts, with_special)

    async def ready(self) -> bool:
        return await self.model.ready()

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
        hide_without_reservation()
        from rayrank.serve.search import RunSearch

        config = SearchConfig.model_validate(settings)
        self._find = RunSearch(config)
        self._threads = ThreadPoolExecutor(config.concurrent, "searching")

    async def search(self, query: str, depth: int) -> list[Hit]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._find, query, depth)


class Api:
    """A replica of the HTTP ingress. Its settings are its user_config, so that changing them closes no connection."""

    def __init__(
        self, ranker: Handle, search: Handle | None = None, further: Mapping[str, Handle] | None = None
    ) -> None:
        """Take the first model, the first stage, and further models by their names."""
        self._ranker, self._search, self._further = ranker, search, dict(further or {})
        self._gate = Gate()
        self._watching: asyncio.Task[None] | None = None
        self._settings: dict[str, Any] | None = None

    async def reconfigure(self, settings: dict[str, Any]) -> None:
        """Replace the HTTP application by one with these settings and digests of keys, unless it has them already."""
        from rayrank.serve.api import close, create_api

        # Serve also calls this when only the rank of the replica has changed.
        if settings == self._settings:
            return
        config = ServeConfig.model_validate(settings["settings"])
        backends = {
            name: Remote(self._further.get(name, self._ranker), self._search, name, each.scaling.patience_s)
            for name, each in config.each().items()
        }
        old = self._gate.app
        self._gate.app, self._settings = create_api(backends, config, **settings["for_keys"]), settings
        if old:
            await asyncio.to_thread(close, old)
        self._watching = self._watching or asyncio.create_task(self._gate.watch())

    async def figures(self) -> Figures:
        """Return the metrics of this replica, for the one that answers a scrape."""
        figures: Figures = self._gate.app.state.service.metrics.figures()
        return figures

    def __del__(self) -> None:
        # Serve calls this when it ends the replica.
        from rayrank.serve.api import close

        if self._gate.app:
            close(self._gate.app)

    def __serve_build_asgi_app__(self) -> Any:
        async def forward(scope: Scope, receive: Channel, send: Channel) -> None:
            # The server's startup event arrives before the settings, and the application does not use it.
            if scope["type"] != "lifespan":
                await self._gate(scope, receive, send)

        return forward
