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

GRACE_S = 0.25
"""After the deadline, in seconds: so long may an answer that a replica gave in time be under way."""

LOOK_S = 1.0
"""Between two looks at whether a replica is up, in seconds."""


class Remote:
    """A `Backend` whose parts are deployments."""

    def __init__(self, ranker: Handle, search: Handle | None, name: str, patience: float) -> None:
        """Take the model's name, and the seconds that a request waits for a replica where there is none."""
        self._ranker, self._search, self._name, self._patience = ranker, search, name, patience
        self._looked = -LOOK_S
        self._look: asyncio.Future[bool]

    async def rerank(self, ask: Ask) -> Answer:
        """Return a replica's answer, given by the deadline, or an empty one if none had its hands free."""
        began, left = time.monotonic(), ask.left()
        try:
            async with asyncio.timeout(None if left is None else left + GRACE_S) as limit:
                found: Answer = await self._call(self._ranker.rerank, ask)
        except TimeoutError:
            if not limit.expired():
                raise
            await self._check()
            found = Answer.of_nothing(ask, self._name)
        # A promotion changes it under the same settings here.
        self._name = found.model
        # What was neither work nor waiting at the replica was waiting for it.
        timing = found.timing
        queue = max(timing.queue, time.monotonic() - began - timing.tokenise - timing.score)
        return replace(found, timing=replace(timing, queue=queue))

    async def _check(self) -> None:
        """Raise Unready if no replica is up; those who find out together look once."""
        now = time.monotonic()
        if now - self._looked >= LOOK_S:
            self._looked, self._look = now, asyncio.ensure_future(asyncio.to_thread(_is_there, self._ranker))
        # Shielded: one who leaves must not end the others' look.
        if not await asyncio.shield(self._look):
            raise Unready(self._ranker.deployment_name)

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
        for attempt in range(ATTEMPTS):
            try:
                found = await self._once(method, arguments, patience or self._patience)
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


def _is_there(method: Handle) -> bool:
    """Return whether a replica is up, though it may be busy."""
    deployment = serve.status().applications[method.app_name].deployments[method.deployment_name]
    return any(count for state, count in deployment.replica_states.items() if state in ("RUNNING", "UPDATING"))
