"""The model behind Ray Serve's handles, as the wire protocols know it."""

import asyncio
import time
from dataclasses import replace
from typing import Any

from ray import serve
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from serve.records import Answer, Ask, Hit, Info, Overloaded, Unready

Handle = DeploymentHandle[Any]

ATTEMPTS = 3
"""Replicas that one request may lose; a request that kills its replica must not kill them all."""


class Remote:
    """A `Backend` whose parts are deployments."""

    def __init__(self, ranker: Handle, search: Handle | None, patience: float) -> None:
        """Take the seconds that a request waits for a replica where there is none."""
        self._ranker, self._search, self._patience = ranker, search, patience

    async def rerank(self, ask: Ask) -> Answer:
        found: Answer = await self._call(self._ranker.rerank, ask)
        return found

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        found: dict[str, Any] = await self._call(self._ranker.explain, query, passage, query_type)
        return found

    async def info(self) -> Info:
        # Who asks wants to know whether somebody is there now.
        found: Info = await self._call(self._ranker.info, patience=min(1.0, self._patience))
        return found

    async def search(self, query: str, depth: int) -> list[Hit]:
        if self._search is None:
            raise Unready("no index is configured")
        found: list[Hit] = await self._call(self._search.search, query, depth)
        return found

    async def _call(self, method: Handle, *arguments: Any, patience: float | None = None) -> Any:
        """Return a replica's answer; another one is asked if it dies, since nothing is changed by asking twice."""
        began = time.monotonic()
        for attempt in range(ATTEMPTS):
            try:
                found = await self._once(method, _in_time(arguments, began), patience or self._patience)
                if isinstance(found, Overloaded):
                    raise found
                return found
            except BackPressureError:
                raise Overloaded(1.0) from None
            except DeploymentUnavailableError:
                raise Unready(method.deployment_name) from None
            except RayActorError:
                if attempt == ATTEMPTS - 1:
                    raise Unready(method.deployment_name) from None
        raise AssertionError

    async def _once(self, method: Handle, arguments: tuple[Any, ...], patience: float) -> Any:
        response = method.remote(*arguments)
        answer = asyncio.ensure_future(response)
        try:
            while not (await asyncio.wait([answer], timeout=patience))[0]:
                if not await asyncio.to_thread(_is_there, method):
                    raise Unready(method.deployment_name)
            return await answer
        finally:
            if not answer.done():
                # The client went away, or nobody is there: the replica shall not score for nobody.
                response.cancel()  # type: ignore[no-untyped-call]
                answer.cancel()
                # What becomes of it now is nobody's concern, nor asyncio's.
                answer.add_done_callback(lambda task: task.cancelled() or task.exception())


def _in_time(arguments: tuple[Any, ...], began: float) -> tuple[Any, ...]:
    """Return the arguments with what is left of a deadline: a replica that died has taken some of it."""
    spent = (time.monotonic() - began) * 1000
    return tuple(
        replace(each, deadline_ms=max(1.0, each.deadline_ms - spent))
        if isinstance(each, Ask) and each.deadline_ms is not None
        else each
        for each in arguments
    )


def _is_there(method: Handle) -> bool:
    """Return whether a replica is up, though it may be busy."""
    deployment = serve.status().applications[method.app_name].deployments[method.deployment_name]
    return any(count for state, count in deployment.replica_states.items() if state in ("RUNNING", "UPDATING"))
