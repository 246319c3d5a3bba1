"""Faults under load, over HTTP: what a client gets while a scorer is stuck, a process is frozen or a key is revoked."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from ray import cloudpickle

from rayrank.serve import app
from rayrank.serve.config import ServeConfig
from rayrank.serve.model import ServedModel
from rayrank.serve.replicas import Ranker
from tests.serve.conftest import application, clients, wait_until

# The replicas cannot import tests.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

BODY = {"query": "where is the bogue", "documents": ["The bogue lies in the bay."] * 10}
PATH = "/v1/rerank"


class StalledRanker(Ranker):
    """A replica whose scorer waits for ever if there is a file `stall` beside the model's folder, which is empty or
    names its process."""

    async def _load(self, config: ServeConfig) -> ServedModel:
        model = await super()._load(config)
        start, stall = model._batcher._start_batch, Path(config.model).with_name("stall")

        def is_to_stall() -> bool:
            with suppress(FileNotFoundError):
                return stall.read_text() in ("", str(os.getpid()))
            return False

        def start_or_wait(pairs: list[Any]) -> Any:
            while is_to_stall():
                time.sleep(0.05)
                if not stall.exists():
                    # The file was deleted for the replica that comes after this one.
                    time.sleep(3600)
            return start(pairs)

        model._batcher._start_batch = start_or_wait
        return model


def replica_pids(name: str, deployment: str) -> set[int]:
    """Return the processes of a deployment's replicas."""
    prefix = f"ServeReplica:{name}:{deployment}"
    lines = {each.pid: " ".join(each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])}
    return {pid for pid, line in lines.items() if line.startswith(f"ray::{prefix}")}


def check_outcomes(outcomes: list[httpx.Response | Exception]) -> dict[int, int]:
    """Check that every client got an answer, and a refused one when to come back; return how many had each status."""
    counts: dict[int, int] = {}
    for outcome in outcomes:
        assert isinstance(outcome, httpx.Response), outcome
        counts[outcome.status_code] = counts.get(outcome.status_code, 0) + 1
        if outcome.status_code in (429, 503):
            assert int(outcome.headers["Retry-After"]) >= 1
    return counts


@pytest.mark.slow
@pytest.mark.timed
def test_a_replica_with_a_stuck_scorer_is_replaced_and_no_request_waits_for_ever(
    serving: str, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "Ranker", StalledRanker)
    stall = model_folder.with_name("stall")
    outcomes: list[httpx.Response | Exception] = []
    # The stuck requests are all that the replica accepts, so it does not take the question whether it is ready.
    settings = {"model": str(model_folder), "batching.stuck_s": 2, "scaling.patience_s": 120, "scaling.most": 4}
    with (
        application(serving, "stuck", **settings) as (url, _),
        clients(f"{url}{PATH}", BODY, outcomes),
    ):
        wait_until(lambda: len(outcomes) > 20)
        stall.touch()
        began = time.monotonic()
        statuses: list[int] = []
        wait_until(lambda: statuses.append(httpx.get(f"{url}/ready", timeout=60).status_code) or 503 in statuses)
        stall.unlink()
        before = len(outcomes)
        wait_until(lambda: len(outcomes) > before + 40)
        took = time.monotonic() - began

    counts = check_outcomes(outcomes)
    assert set(counts) <= {200, 503}
    # At most one request of each of the four clients was lost, and it was told so.
    assert counts.get(503, 0) <= 4
    assert took < 45


@pytest.mark.slow
@pytest.mark.timed
def test_while_the_scorer_of_one_of_two_replicas_is_stuck_the_endpoint_is_ready(
    serving: str, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "Ranker", StalledRanker)
    stall = model_folder.with_name("stall")
    settings = {"model": str(model_folder), "scaling.min": 2, "scaling.max": 2, "scaling.drain_s": 1}
    answers: list[httpx.Response] = []
    with application(serving, "half", **settings) as (url, _):
        replicas = replica_pids("half", "Ranker")
        assert len(replicas) == 2

        def was_asked() -> bool:
            """Whether the stuck replica was asked six times, for two seconds each: as its rate is not known yet, its
            scorer counts as stuck after eight."""
            answers.append(httpx.get(f"{url}/ready", timeout=60))
            return sum(answer.elapsed.total_seconds() > 1.5 for answer in answers) >= 6

        stall.write_text(str(min(replicas)))
        try:
            wait_until(was_asked)
        finally:
            stall.unlink()

    assert {answer.status_code for answer in answers} == {200}


def test_a_revoked_key_is_refused_within_five_seconds_without_a_restart_and_a_limited_one_above_its_limit(
    serving: str, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("one # search team\ntwo # shop\nthree passages=10 # batch\n")
    headers = [{"Authorization": f"Bearer {key}"} for key in ("one", "two", "three")]
    settings = {"model": str(model_folder), "keys_file": str(tmp_path / "keys"), "resources.ingress": 1}
    with application(serving, "keys", **settings) as (url, _):
        replicas = replica_pids("keys", "Api")
        assert [httpx.post(url + PATH, json=BODY, headers=each, timeout=60).status_code for each in headers] == [
            200
        ] * 3
        (tmp_path / "keys").write_text("one # search team\nthree passages=10 # batch\n")
        wait_until(lambda: httpx.post(url + PATH, json=BODY, headers=headers[1], timeout=60).status_code == 401, 5)
        assert httpx.post(url + PATH, json=BODY, headers=headers[0], timeout=60).status_code == 200
        # The third key, whose line has not changed, has used up the passages of this minute.
        refused = httpx.post(url + PATH, json=BODY, headers=headers[2], timeout=60)
        assert (refused.status_code, int(refused.headers["Retry-After"]) >= 1) == (429, True)
        assert "may send 10 passages a minute" in refused.json()["message"]
        figures = httpx.get(f"{url}/metrics", headers=headers[0], timeout=60).text
        assert 'rayrank_client_requests_total{client="batch",status="429"} 1.0' in figures
        assert replica_pids("keys", "Api") == replicas != set()


@pytest.mark.slow
def test_requests_that_would_wait_too_long_are_refused_at_once(serving: str, model_folder: Path) -> None:
    body = {"query": "where is the bogue", "documents": ["word " * 175] * 200, "return_documents": False}
    with (
        application(serving, "patient", model=str(model_folder), **{"batching.queue_s": 1}) as (url, _),
        ThreadPoolExecutor(24) as pool,
    ):
        httpx.post(url + PATH, json=body, timeout=120)
        began = time.monotonic()
        outcomes = list(pool.map(lambda _: httpx.post(url + PATH, json=body, timeout=120), range(24)))
        took = time.monotonic() - began

    counts = check_outcomes(list(outcomes))
    assert set(counts) == {200, 429}
    # Those that were refused did not wait for the others.
    assert min(answer.elapsed.total_seconds() for answer in outcomes if answer.status_code == 429) < took / 2
