"""The endpoint under load: correct scores, and no lost requests when models and replicas change."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import ray
from ray import serve
from ray.serve import RunTarget

from rayrank.bundle.export import load
from rayrank.bundle.predicted_types import types_for
from rayrank.bundle.text_scorer import score
from rayrank.serve.app import build
from tests.serve.conftest import application, clients, make_model, wait_until

QUERIES = ["where is the bogue", "who asked", "how tall is the lighthouse of the bay", "bogue"]
PASSAGES = [f"The bogue number {number} lies in the bay. " * (number % 7 + 1) for number in range(40)]

LONG = ["word " * 175] * 400


def expected(folder: Path, query: str, passages: list[str]) -> np.ndarray:
    exported = load(str(folder))
    kinds = types_for(exported, [query], [None])
    return score(exported, [query] * len(passages), passages, kinds and kinds * len(passages))


def logits(answer: httpx.Response, count: int) -> np.ndarray:
    """Return the scores of a text-embeddings-inference answer in the order of the request."""
    found = np.full(count, np.nan)
    for row in answer.json():
        found[row["index"]] = row["score"]
    return found


def request(query: str, passages: list[str]) -> dict[str, Any]:
    return {"query": query, "texts": passages, "raw_scores": True, "truncate": True}


def ask(client: httpx.Client, query: str, passages: list[str]) -> httpx.Response:
    return client.post("/rerank", json=request(query, passages))


def test_concurrent_clients_get_the_scores_of_the_exported_model(server: str, model_folder: Path) -> None:
    wanted = {query: expected(model_folder, query, PASSAGES) for query in QUERIES}

    def one(number: int) -> tuple[np.ndarray, np.ndarray]:
        query, count = QUERIES[number % 4], number % 39 + 1
        with httpx.Client(base_url=server, timeout=60) as client:
            return logits(ask(client, query, PASSAGES[:count]), count), wanted[query][:count]

    with ThreadPoolExecutor(8) as pool:
        for found, scores in pool.map(one, range(48)):
            assert np.allclose(found, scores, atol=1e-5)


@pytest.mark.slow
def test_deploying_other_settings_under_load_loses_no_request(serving: str, model_folder: Path, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other", seed=1)
    old, new = (expected(folder, QUERIES[0], PASSAGES[:10]) for folder in (model_folder, other))
    outcomes: list[httpx.Response | Exception] = []
    with (
        application(serving, "swapped", model=str(model_folder)) as (url, deploy),
        clients(f"{url}/rerank", request(QUERIES[0], PASSAGES[:10]), outcomes),
    ):
        wait_until(lambda: len(outcomes) > 20)
        for changes in ({}, {"limits.documents": "500", "resources.ingress": "2"}):
            deploy(model=str(other), **changes)
            before = len(outcomes)
            wait_until(lambda: len(outcomes) > before + 20)  # noqa: B023 - it is called right here

    assert {outcome.status_code for outcome in outcomes if isinstance(outcome, httpx.Response)} == {200}
    found = [logits(outcome, 10) for outcome in outcomes if isinstance(outcome, httpx.Response)]
    assert len(found) == len(outcomes)
    assert not np.allclose(old, new, atol=1e-3)
    assert all(np.allclose(row, old, atol=1e-5) or np.allclose(row, new, atol=1e-5) for row in found)
    assert np.allclose(found[0], old, atol=1e-5)
    assert np.allclose(found[-1], new, atol=1e-5)


def test_each_model_of_an_endpoint_has_its_own_scores_replicas_and_figures(
    serving: str, model_folder: Path, tmp_path: Path
) -> None:
    other = make_model(tmp_path / "other", seed=1)
    wanted = {folder.name: expected(folder, QUERIES[0], PASSAGES[:10]) for folder in (model_folder, other)}
    body = {"query": QUERIES[0], "documents": PASSAGES[:10], "raw_scores": True}
    models = {"other": {"model": str(other), "batching": {"queue_s": 600}}}
    with application(serving, "several", model=str(model_folder), models=models) as (url, _):
        for asked in (None, "other", model_folder.name):
            answer = httpx.post(f"{url}/v1/rerank", json={**body, "model": asked}, timeout=60).json()
            found = {row["index"]: row["relevance_score"] for row in answer["results"]}
            assert answer["model"] == asked or not asked
            scores = wanted[asked or model_folder.name]
            assert np.allclose([found[place] for place in range(10)], scores, atol=1e-5)
        refused = httpx.post(f"{url}/v1/rerank", json={**body, "model": "any"}, timeout=60)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "model")
        assert [each["id"] for each in httpx.get(f"{url}/v1/models", timeout=60).json()["data"]] == list(wanted)
        assert httpx.get(f"{url}/ready", timeout=60).status_code == 200
        figures = httpx.get(f"{url}/metrics", timeout=60).text
        for name, pairs in ((model_folder.name, 20), ("other", 10)):
            assert f'rayrank_pairs_total{{model="{name}"}} {pairs}.0' in figures
            assert f'rayrank_model_replicas{{model="{name}"}} 1.0' in figures


@pytest.mark.parametrize(
    ("deployment", "count", "lost"),
    [
        pytest.param("Ranker", 2, 0, id="one of two"),
        pytest.param("Ranker", 1, 0, id="the only one", marks=pytest.mark.slow),
        pytest.param("Api", 1, 4, id="the only ingress", marks=pytest.mark.slow),
    ],
)
def test_a_killed_replica_loses_only_requests_that_no_other_replica_can_take(
    serving: str, model_folder: Path, deployment: str, count: int, lost: int
) -> None:
    outcomes: list[httpx.Response | Exception] = []
    name = f"killed-{deployment}-{count}"
    # On a busy machine a new replica may take longer to start than requests wait by default.
    settings = {"model": str(model_folder), "scaling": {"min": count, "max": count, "patience_s": 120}}
    settings |= {"resources.ingress": count}
    with (
        application(serving, name, **settings) as (url, _),
        clients(f"{url}/rerank", request(QUERIES[0], PASSAGES[:10]), outcomes),
    ):
        wait_until(lambda: len(outcomes) > 20)
        names = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
        replicas = [replica for replica in names if replica.startswith(f"SERVE_REPLICA::{name}#{deployment}#")]
        assert len(replicas) == count
        ray.kill(ray.get_actor(replicas[0], namespace="serve"))
        before = len(outcomes)
        wait_until(lambda: len(outcomes) > before + 40)

    failed = [each for each in outcomes if isinstance(each, Exception) or each.status_code != 200]
    # At most one request of each client.
    assert len(failed) <= lost


@pytest.mark.slow
def test_a_full_queue_refuses_requests_with_retry_after(serving: str, model_folder: Path) -> None:
    settings = {"model": str(model_folder), "batching.queued_pairs": "300"}
    with application(serving, "full", **settings) as (url, _), ThreadPoolExecutor(12) as pool:
        client = httpx.Client(base_url=url, timeout=120)
        answers = list(pool.map(lambda _: ask(client, QUERIES[0], LONG), range(12)))

    assert {answer.status_code for answer in answers} == {200, 429}
    assert all(int(answer.headers["Retry-After"]) >= 1 for answer in answers if answer.status_code == 429)


@pytest.mark.slow
@pytest.mark.timed
def test_a_deadline_holds_even_if_all_replicas_are_busy(serving: str, model_folder: Path) -> None:
    outcomes: list[httpx.Response | Exception] = []
    settings = {"model": str(model_folder), "scaling.most": "1"}
    with (
        application(serving, "busy", **settings) as (url, _),
        httpx.Client(base_url=url, timeout=120) as client,
        clients(f"{url}/rerank", request(QUERIES[0], LONG[:150]), outcomes),
    ):
        wait_until(lambda: len(outcomes) > 2)
        began = time.monotonic()
        answer = client.post("/v1/rerank", json={"query": "a", "documents": ["b"], "deadline_ms": 10})
        took = time.monotonic() - began
        began = time.monotonic()
        patient = client.post("/v1/rerank", json={"query": "a", "documents": ["b"]})
        waited = time.monotonic() - began

    assert answer.status_code == patient.status_code == 200
    assert (answer.json()["partial"], answer.json()["results"]) == (True, [])
    assert len(patient.json()["results"]) == 1
    assert took < waited / 2


@pytest.mark.timed
def test_passages_scored_before_the_deadline_are_returned(server: str) -> None:
    body = {"query": QUERIES[0], "documents": LONG}
    with httpx.Client(base_url=server, timeout=120) as client:
        client.post("/v1/rerank", json=body)
        began = time.monotonic()
        whole = client.post("/v1/rerank", json=body).json()
        alone = time.monotonic() - began
        part = client.post("/v1/rerank", json={**body, "deadline_ms": 500 * alone}).json()

    assert (whole["partial"], len(whole["results"])) == (False, len(LONG))
    assert part["partial"]
    assert 0 < len(part["results"]) < len(LONG)


@pytest.mark.timed
def test_requests_of_disconnected_clients_are_not_scored(server: str) -> None:
    with ThreadPoolExecutor(16) as pool, httpx.Client(base_url=server, timeout=120) as patient:
        ask(patient, QUERIES[0], LONG)
        began = time.monotonic()
        ask(patient, QUERIES[0], LONG)
        alone = time.monotonic() - began

        def leave(_: int) -> None:
            with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=server, timeout=alone) as impatient:
                ask(impatient, QUERIES[0], LONG)

        list(pool.map(leave, range(16)))
        began = time.monotonic()
        ask(patient, QUERIES[0], LONG)

        # If the abandoned requests were scored, this would take sixteen times as long.
        assert time.monotonic() - began < 6 * alone


def test_without_a_replica_the_endpoint_answers_503(serving: str, model_folder: Path) -> None:
    settings = {"model": str(model_folder), "resources": {"cpus": 1000}, "scaling": {"patience_s": 1}}
    target = RunTarget(build(settings), name="absent", route_prefix="/absent")
    serve.run_many([target], wait_for_applications_running=False)
    with httpx.Client(base_url=f"{serving}/absent", timeout=60) as client:
        # A file of the page needs only the ingress.
        wait_until(lambda: client.get("/page.js").status_code == 200)
        assert [client.get(path).status_code for path in ("/health", "/ready")] == [503, 503]
        assert ask(client, "a", ["b"]).status_code == 503
        # Without a replica, a deadline does not give an empty answer either.
        hurried = client.post("/v1/rerank", json={"query": "a", "documents": ["b"], "deadline_ms": 100})
        assert hurried.status_code == 503
    # Not waited for: Serve takes long to delete a replica that has never started.
    serve.delete("absent", _blocking=False)


def test_an_invalid_request_that_a_replica_finds_gets_one_sentence(server: str) -> None:
    answer = httpx.post(f"{server}/explain", json={"query": "where is it", "document": " "}, timeout=60)

    assert answer.status_code == 422
    message = answer.json()["error"]["message"]
    assert message == "The passage has no word pieces in the model's input: send a passage with text."


@pytest.mark.slow
def test_search_retrieves_and_re_ranks(serving: str, model_folder: Path, run_folder: Path) -> None:
    settings = {"model": str(model_folder), "search.run": str(run_folder)}
    with application(serving, "found", **settings) as (url, _):
        asked = {"query": "where is the lighthouse", "depth": 5}
        answer = httpx.post(f"{url}/search", json=asked, timeout=60)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["results"]) == 5
        # The exported folder contains a weight.
        exported_weight = httpx.get(f"{url}/info", timeout=60).json()["first_stage_weight"]
        same, alone = (
            httpx.post(f"{url}/search", json={**asked, "first_stage_weight": weight}, timeout=60).json()["results"]
            for weight in (exported_weight, 1)
        )
        assert [hit["id"] for hit in answer.json()["results"]] == [hit["id"] for hit in same]
        assert [hit["first_stage_rank"] for hit in alone] == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_wrong_setting_gives_one_line_on_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ray.serve.scripts", "run", "serve.app:build", f"model={tmp_path}/none"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"{tmp_path}/none is no exported model" in done.stderr.strip().split("\n")[-1]
