"""The backend of the HTTP routes on Ray Serve: calls to the model's replicas through deployment handles."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from rayrank.core.errors import RayrankError
from rayrank.serve.deployments import INGRESS
from rayrank.serve.records import Answer, Ask, Figures, Hit, Info, Load, Overloaded, Piece, Unready

Handle = DeploymentHandle[Any]

ATTEMPTS = 3
"""Replicas that one request is sent to, one after another, if they die; a request that kills its replica must not kill
all of them."""

GRACE_S = 0.25
"""Seconds after the deadline in which the answer of a replica may still arrive."""

BROADCAST_S = 5.0
"""Seconds in which all replicas have to answer a question about them; a scrape of Prometheus ends after ten."""

BUSY_S = 3.0
"""Seconds in which one replica may say that it is ready; after them all are asked."""

STATUS_PERIOD_S = 1.0
"""Seconds for which the last check for running replicas is valid."""


class Remote:
    """A `Backend` that calls deployments of Ray Serve."""

    def __init__(self, ranker: Handle, search: Handle | None, name: str, patience: float) -> None:
        """Take the model's name, and the seconds that a request waits if no replica is running."""
        self._ranker, self._search, self.name = ranker, search, name
        self._patience = patience
        self._checked_at = -STATUS_PERIOD_S
        self._is_running: asyncio.Future[bool]

    async def rerank(self, ask: Ask) -> Answer:
        """Return a replica's answer, or one without scores if all replicas were too busy until the deadline."""
        began, left = time.monotonic(), ask.seconds_left()
        try:
            async with asyncio.timeout(None if left is None else left + GRACE_S) as limit:
                found: Answer = await self._call(self._ranker.rerank, ask)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._check()
            found = Answer.unscored(ask, self.name)
        # A promotion changes the model's name, but not the settings of this ingress.
        self.name = found.model
        # The time that the replica does not account for was spent waiting for a replica.
        timing = found.timing
        queue = max(timing.queue, time.monotonic() - began - timing.tokenise - timing.score)
        return replace(found, timing=replace(timing, queue=queue))

    async def _check(self) -> None:
        """Raise Unready if no replica is running; concurrent requests share one check."""
        now = time.monotonic()
        if now - self._checked_at >= STATUS_PERIOD_S:
            self._checked_at = now
            self._is_running = asyncio.ensure_future(asyncio.to_thread(_has_replica, self._ranker))
        # Shielded: a client that disconnects must not cancel the check for the others.
        if not await asyncio.shield(self._is_running):
            raise Unready(self._ranker.deployment_name)

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        found: dict[str, Any] = await self._call(self._ranker.explain, query, passage, query_type)
        return found

    async def info(self) -> Info:
        # A client that asks for the status gets it within a second, even if no replica is running.
        found: Info = await self._call(self._ranker.info, patience=min(1.0, self._patience))
        return found

    async def loads(self) -> list[Load]:
        try:
            found: list[Load] = await _all(self._ranker, "load")
        except Unready:
            # The figures of the ingress are worth a scrape without those of the model.
            return []
        return found

    async def ingresses(self) -> list[Figures]:
        found: list[Figures] = await _all(serve.get_deployment_handle(INGRESS, self._ranker.app_name), "figures")
        return found

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        found: list[list[Piece]] = await self._call(self._ranker.tokenise, texts, with_special)
        return found

    async def ready(self) -> None:
        with suppress(Overloaded, Unready, TimeoutError):
            async with asyncio.timeout(BUSY_S):
                if await self._call(self._ranker.ready, patience=min(1.0, self._patience)):
                    return
        # The replica that was asked does not score, or none has room for the question. One that scores is enough.
        if not any(load.is_ready for load in await self.loads()):
            raise Unready(self._ranker.deployment_name)

    async def search(self, query: str, depth: int) -> list[Hit]:
        if self._search is None:
            raise Unready("no first stage is configured")
        found: list[Hit] = await self._call(self._search.search, query, depth)
        return found

    async def _call(self, method: Handle, *arguments: Any, patience: float | None = None) -> Any:
        """Return a replica's answer; if the replica dies, try another one, since calls have no side effects."""
        for attempt in range(ATTEMPTS):
            try:
                found = await self._once(method, arguments, patience or self._patience)
                if isinstance(found, Overloaded | RayrankError):
                    raise found
                return found
            except BackPressureError:
                raise Overloaded(1.0) from None
            except DeploymentUnavailableError:
                raise Unready(method.deployment_name) from None
            except RayActorError:
                if attempt == ATTEMPTS - 1:
                    raise Unready(method.deployment_name) from None
                now = time.time()
                arguments = tuple(replace(each, resent_at=now) if isinstance(each, Ask) else each for each in arguments)
        raise AssertionError

    async def _once(self, method: Handle, arguments: tuple[Any, ...], patience: float) -> Any:
        response = method.remote(*arguments)
        answer = asyncio.ensure_future(response)
        try:
            while not (await asyncio.wait([answer], timeout=patience))[0]:
                if not await asyncio.to_thread(_has_replica, method):
                    raise Unready(method.deployment_name)
            return await answer
        finally:
            if not answer.done():
                # The client has disconnected, or no replica is running: nobody needs the scores.
                response.cancel()  # type: ignore[no-untyped-call]
                answer.cancel()
                # Reading the exception keeps asyncio from logging it as never retrieved.
                answer.add_done_callback(lambda task: task.cancelled() or task.exception())


async def _all(deployment: Handle, method: str) -> list[Any]:
    """Return what each replica answers; raises Unready if one has not answered within `BROADCAST_S`."""
    try:
        found = await deployment.broadcast(method).results_async(timeout_s=BROADCAST_S, return_exceptions=True)
    except (TimeoutError, DeploymentUnavailableError):
        raise Unready(deployment.deployment_name) from None
    return [each for each in found if not isinstance(each, BaseException)]


def _has_replica(method: Handle) -> bool:
    """Return whether a replica is running, busy or not."""
    deployment = serve.status().applications[method.app_name].deployments[method.deployment_name]
    return any(count for state, count in deployment.replica_states.items() if state in ("RUNNING", "UPDATING"))
