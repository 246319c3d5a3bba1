"""Requests from the ingress to the replicas, and their deadlines if all replicas are busy."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError

from rayrank.core.errors import ConfigError
from rayrank.serve import remote as requests_to_replicas
from rayrank.serve.app import _ranker
from rayrank.serve.config import ServeConfig
from rayrank.serve.records import Answer, Ask, Load, Timing, Unready
from rayrank.serve.remote import GRACE_S, Remote

pytestmark = pytest.mark.timed

SCORED = Answer([1.0], [0.7], [0], 5, model="new", timing=Timing(tokenise=0.01, queue=0.02, score=0.03))


class Response:
    """The response of a deployment handle."""

    def __init__(self, answer: Awaitable[Any]) -> None:
        self._answer, self.is_cancelled = answer, False

    def __await__(self) -> Generator[Any, None, Any]:
        return self._answer.__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


class Ranker:
    """A deployment handle whose replicas answer by a function of the test."""

    deployment_name = "Ranker"

    def __init__(self, answer: Callable[[Ask], Awaitable[Any]]) -> None:
        self._answer, self.responses = answer, []  # type: tuple[Any, list[Response]]
        self.rerank = self

    def remote(self, ask: Ask) -> Response:
        self.responses.append(Response(self._answer(ask)))
        return self.responses[-1]


async def late(ask: Ask) -> Answer:
    await asyncio.sleep(30)
    return SCORED


async def soon(ask: Ask) -> Answer:
    await asyncio.sleep(0.2)
    return SCORED


def remote(ranker: Ranker) -> Remote:
    return Remote(ranker, None, "old", patience=20)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_up", [True, False])
def test_at_the_deadline_the_answer_has_no_scores_or_is_unready_without_a_replica(
    is_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[object] = []
    monkeypatch.setattr(requests_to_replicas, "_has_replica", lambda method: (checks.append(method), is_up)[1])
    ranker = Ranker(late)
    ask = Ask("what", ["a", "b"], "location", deadline_ms=100)

    async def both(behind: Remote) -> list[Any]:
        return list(await asyncio.gather(behind.rerank(ask), behind.rerank(ask), return_exceptions=True))

    began = time.monotonic()
    answers = asyncio.run(both(remote(ranker)))

    assert 0.1 <= time.monotonic() - began < 0.1 + GRACE_S + 1
    assert len(checks) == 1
    # The replicas must not score for clients that already have an answer.
    assert all(response.is_cancelled for response in ranker.responses)
    if is_up:
        assert all(answer.partial and answer.logits == [None, None] and not answer.order for answer in answers)
        assert all((answer.query_type, answer.model) == ("location", "old") for answer in answers)
        assert all(answer.timing.queue >= 0.1 for answer in answers)
    else:
        assert all(isinstance(answer, Unready) for answer in answers)


def test_waiting_for_a_replica_counts_as_queueing() -> None:
    answer = asyncio.run(remote(Ranker(soon)).rerank(Ask("what", ["a"])))

    assert (answer.logits, answer.model) == (SCORED.logits, "new")
    assert answer.timing.queue >= 0.15
    assert (answer.timing.tokenise, answer.timing.score) == (0.01, 0.03)


def test_a_request_whose_replica_dies_is_sent_again_and_its_wait_counts_from_then() -> None:
    asked: list[Ask] = []

    async def first_dies(ask: Ask) -> Answer:
        asked.append(ask)
        if len(asked) == 1:
            raise RayActorError
        return SCORED

    sent = Ask("what", ["a"], received_at=time.time() - 60, deadline_ms=90_000)
    assert asyncio.run(remote(Ranker(first_dies)).rerank(sent)).logits == SCORED.logits

    first, second = asked
    assert first == sent
    assert second.seconds_waited() < 5
    # The client's deadline still counts from the arrival.
    assert second.seconds_ago() == pytest.approx(60, abs=5)
    assert first.seconds_waited() == pytest.approx(60, abs=5)


def test_a_timeout_that_is_not_the_deadline_is_an_error() -> None:
    async def fails(ask: Ask) -> Answer:
        raise TimeoutError("something else took too long")

    with pytest.raises(TimeoutError, match="something else"):
        asyncio.run(remote(Ranker(fails)).rerank(Ask("what", ["a"], deadline_ms=5000)))


class Silent:
    """A deployment handle whose replicas do not answer a question to all of them in time."""

    deployment_name = app_name = "any"

    def broadcast(self, method: str) -> "Silent":
        return self

    async def results_async(self, timeout_s: float, return_exceptions: bool) -> list[Any]:
        raise TimeoutError


def test_without_the_figures_of_an_ingress_a_scrape_fails_because_sums_must_not_decrease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests_to_replicas.serve, "get_deployment_handle", lambda name, application: Silent())
    behind = Remote(Silent(), None, "any", patience=20)  # type: ignore[arg-type]

    assert asyncio.run(behind.loads()) == []
    with pytest.raises(Unready):
        asyncio.run(behind.ingresses())


class Replicas:
    """A deployment handle whose replicas say by functions of the test whether they score; one is asked at first."""

    deployment_name = app_name = "Ranker"

    def __init__(self, asked: Callable[[], Awaitable[bool]], loads: list[Load | Exception] | None) -> None:
        self.ready, self._asked, self._loads = self, asked, loads

    def remote(self) -> Response:
        return Response(self._asked())

    def broadcast(self, method: str) -> "Replicas":
        assert method == "load"
        return self

    async def results_async(self, timeout_s: float, return_exceptions: bool) -> list[Load | Exception]:
        if self._loads is None:
            raise TimeoutError
        return self._loads


def says(answer: Any, seconds: float = 0.0) -> Callable[[], Awaitable[Any]]:
    async def say() -> Any:
        await asyncio.sleep(seconds)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return say


SCORING, STUCK, DEAD = Load("m", 0), Load("m", 0, is_ready=False), RayActorError()
FULL = BackPressureError(8, 8)


@pytest.mark.parametrize(
    ("asked", "loads", "is_ready"),
    [
        (says(True), [], True),
        (says(False), [STUCK, SCORING], True),
        (says(False), [STUCK, STUCK], False),
        (says(False), [STUCK], False),
        (says(True, seconds=60), [SCORING, STUCK], True),
        (says(True, seconds=60), [STUCK, STUCK], False),
        (says(True, seconds=60), None, False),
        (says(FULL), [SCORING], True),
        (says(FULL), [STUCK], False),
        (says(DEAD), [DEAD, SCORING], True),
        (says(DEAD), [DEAD], False),
    ],
)
def test_a_model_is_ready_if_one_of_its_replicas_scores(
    asked: Any, loads: list[Load | Exception] | None, is_ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests_to_replicas, "BUSY_S", 0.2)
    monkeypatch.setattr(requests_to_replicas, "_has_replica", lambda method: True)
    behind = Remote(Replicas(asked, loads), None, "m", patience=20)  # type: ignore[arg-type]

    began = time.monotonic()
    if is_ready:
        asyncio.run(behind.ready())
    else:
        with pytest.raises(Unready):
            asyncio.run(behind.ready())
    # The question to a replica that does not answer ends after BUSY_S.
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("scaling", "ongoing"),
    [
        ({}, 256),
        ({"min": 2, "max": 2, "target": 2}, 256),
        ({"max": 3, "target": 2}, 16),
        ({"max": 3, "target": 0.1}, 1),
        ({"max": 3, "most": 5}, 5),
    ],
)
def test_with_autoscaling_a_replica_accepts_fewer_requests(scaling: dict[str, Any], ongoing: int) -> None:
    config = ServeConfig.model_validate({"model": "somewhere", "scaling": scaling})

    assert _ranker(config).max_ongoing_requests == ongoing


def test_a_refusal_that_a_replica_returns_as_a_value_is_raised() -> None:
    async def refused(ask: Ask) -> ConfigError:
        return ConfigError("min_precision=0.9 cannot be given.")

    with pytest.raises(ConfigError, match=r"min_precision=0\.9 cannot be given"):
        asyncio.run(remote(Ranker(refused)).rerank(Ask("q", ["a"], min_precision=0.9)))
