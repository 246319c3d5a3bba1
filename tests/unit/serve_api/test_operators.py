"""What operators of an endpoint rely on: figures, the access log, security headers, and parts that are switched off."""

import asyncio
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families
from starlette.types import Message, Receive, Scope, Send

from rayrank.serve import access
from rayrank.serve.api import create_api, errors_of
from rayrank.serve.config import HttpConfig, ServeConfig
from rayrank.serve.draining import Gate
from rayrank.serve.metrics import Metrics
from rayrank.serve.records import Answer, Load, Timing
from tests.unit.serve_api.conftest import WordScorer

BODY = {"query": "how do whales breathe", "documents": ["bread needs yeast", "whales breathe air", "whales sing"]}
Start = Callable[..., str]


def post(url: str, body: Any) -> requests.Response:
    return requests.post(url, json=body, timeout=10)


def values(text: str) -> dict[str, float]:
    """Return the values of Prometheus' text by name and labels, the model's last."""
    found = {}
    for sample in (sample for family in text_string_to_metric_families(text) for sample in family.samples):
        labels = dict(sample.labels)
        labels["model"] = labels.pop("model", "")
        found[" ".join([sample.name, *filter(None, labels.values())])] = sample.value
    return found


def scraped(url: str) -> dict[str, float]:
    return values(requests.get(f"{url}/metrics", timeout=10).text)


def test_metrics_count_requests_pairs_and_phases(start: Start) -> None:
    url = start(ServeConfig(name="words"))
    post(f"{url}/v1/rerank", BODY)
    post(f"{url}/v1/rerank", {})
    found = scraped(url)
    assert found["rayrank_requests_total /v1/rerank 200 words"] == 1
    assert found["rayrank_requests_total /v1/rerank 422"] == 1
    assert found["rayrank_pairs_total words"] == 3
    for phase, seconds in (("tokenise", 0.001), ("queue", 0.002), ("score", 0.003)):
        assert found[f"rayrank_phase_seconds_sum {phase} words"] == pytest.approx(seconds)
    assert found["rayrank_queued_pairs words"] == 23
    assert found["rayrank_model_replicas words"] == 2
    # The scrape itself.
    assert found["rayrank_in_flight_requests"] == 1


def test_metrics_count_truncated_passages_and_partial_answers(start: Start) -> None:
    url = start(ServeConfig(name="words"))
    post(f"{url}/v1/rerank", {**BODY, "documents": ["x" * 300, "y" * 300, "short"]})
    post(f"{url}/v1/rerank", {**BODY, "deadline_ms": 0.5})
    found = scraped(url)
    assert found["rayrank_truncated_passages_total words"] == 2
    assert found["rayrank_partial_answers_total words"] == 1


def test_all_unknown_paths_have_one_label(start: Start) -> None:
    url = start(ServeConfig(name="words"))
    for place in range(20):
        requests.get(f"{url}/nowhere/{place}", timeout=10)
    requests.get(f"{url}/v1/models/any", timeout=10)
    counted = {name: value for name, value in scraped(url).items() if name.startswith("rayrank_requests_total")}
    named = "/v1/models/{name:path} 404 words"
    assert counted == {"rayrank_requests_total unknown 404": 20, f"rayrank_requests_total {named}": 1}


def answered(metrics: Metrics, times: int) -> Metrics:
    for _ in range(times):
        metrics.request("/score", 200, 0.1, "words")
        metrics.answer(Answer([1.0], [0.5], [0], 7, model="words", num_cached=1, timing=Timing(0.1, 0.2, 0.3)))
    return metrics


def test_a_scrape_adds_up_all_replicas() -> None:
    first, second = answered(Metrics(), 2), answered(Metrics(), 3)
    with second.in_flight():
        found = values(
            first.text([first.figures(), second.figures()], {"words": [Load("words", 5), Load("words", 6)]}).decode()
        )
    assert found["rayrank_requests_total /score 200 words"] == 5
    assert found["rayrank_request_seconds_count /score words"] == 5
    assert found["rayrank_request_seconds_bucket +Inf /score words"] == 5
    assert found["rayrank_cached_passages_total words"] == 5
    assert (found["rayrank_queued_pairs words"], found["rayrank_in_flight_requests"]) == (11, 1)
    assert (found["rayrank_ingress_replicas"], found["rayrank_model_replicas words"]) == (2, 2)


def test_sums_do_not_decrease_when_a_replica_ends() -> None:
    first, second, third = answered(Metrics(), 2), answered(Metrics(), 3), answered(Metrics(), 4)
    first.text([second.figures()], {})
    # The third replica has never met the second one, which is gone, but the first one has.
    found = values(third.text([first.figures()], {}).decode())
    assert found["rayrank_requests_total /score 200 words"] == 9
    assert found["rayrank_ingress_replicas"] == 2


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines of the access log."""
    found: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    monkeypatch.setattr(access.log, "handlers", [Handler()])
    monkeypatch.setattr(access.log, "propagate", False)
    monkeypatch.setattr(access.log, "level", logging.INFO)
    access.log.manager._clear_cache()  # type: ignore[attr-defined]
    return found


def logged(lines: list[str], number: int) -> list[dict[str, Any]]:
    """Return the lines of that many requests: each is written after its answer was sent."""
    limit = time.monotonic() + 10
    while len(lines) < number and time.monotonic() < limit:
        time.sleep(0.01)
    return [json.loads(line) for line in lines]


def test_the_access_log_has_a_line_of_json_for_each_request(lines: list[str], start: Start) -> None:
    url = start(ServeConfig(name="words", http=HttpConfig(access_log=True)))
    headers = {"x-request-id": "abc-1"}
    requests.post(f"{url}/v1/rerank?q=secret", json=BODY, headers=headers, timeout=10)
    requests.head(f"{url}/nowhere%0Aforged", timeout=10)
    ranked, lost = logged(lines, 2)
    assert ranked.pop("ms") >= 0
    assert ranked.pop("time")
    assert ranked == {
        "id": "abc-1",
        "method": "POST",
        "path": "/v1/rerank",
        "status": 200,
        "documents": 3,
        "model": "words",
    }
    assert (lost["method"], lost["path"], lost["status"]) == ("HEAD", "/nowhere\nforged", 404)
    assert all("\n" not in line for line in lines)


def test_documents_of_all_queries_of_a_request_are_logged(lines: list[str], start: Start) -> None:
    url = start(ServeConfig(name="words", http=HttpConfig(access_log=True)))
    post(f"{url}/score", {"queries": ["a", "b", "a"], "documents": ["c", "d", "e"]})
    assert logged(lines, 1)[0]["documents"] == 3


@pytest.mark.parametrize(("has_answered", "status"), [(False, 499), (True, 200)])
def test_a_client_that_leaves_while_it_is_scored_is_no_fault_of_the_server(has_answered: bool, status: int) -> None:
    metrics = Metrics()

    async def scores(scope: Scope, receive: Receive, send: Send) -> None:
        if has_answered:
            await send({"type": "http.response.start", "status": 200})
        await asyncio.sleep(60)

    async def leave() -> None:
        async def send(message: Message) -> None:
            pass

        scope = {"type": "http", "method": "POST", "path": "/score", "headers": []}
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await access.Access(scores, metrics)(scope, send, send)  # type: ignore[arg-type]

    asyncio.run(leave())
    assert values(metrics.text([], {}).decode())[f"rayrank_requests_total unknown {status}"] == 1


def test_requests_that_a_stopping_server_refuses_are_counted_and_logged(lines: list[str]) -> None:
    gate = Gate()
    gate.app = create_api({"words": WordScorer()}, ServeConfig(name="words", http=HttpConfig(access_log=True)))
    gate._is_stopping = True

    async def ask() -> tuple[httpx.Response, str]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://here") as client:
            return await client.post("/v2/rerank", json=BODY), (await client.get("/metrics")).text

    refused, figures = asyncio.run(ask())
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert "content-security-policy" in refused.headers
    assert values(figures)["rayrank_requests_total stopping 503"] == 1
    assert {key: json.loads(lines[0])[key] for key in ("path", "status")} == {"path": "/v2/rerank", "status": 503}


def test_figures_and_the_access_log_have_the_name_of_a_key_and_never_the_key(
    lines: list[str], start: Start, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("sesame passages=4 # shop\n")
    config = {"name": "words", "keys_file": str(tmp_path / "keys"), "http": {"access_log": True}}
    url, headers = start(ServeConfig.model_validate(config)), {"authorization": "Bearer sesame"}
    answers = [requests.post(f"{url}{path}", json=BODY, headers=headers, timeout=10) for path in ("/v1/rerank",) * 2]
    pair = requests.post(f"{url}/score", json={"text_1": "a", "text_2": "b"}, headers=headers, timeout=10)
    text = requests.get(f"{url}/metrics", headers=headers, timeout=10).text

    # Four passages a minute: the second request has to wait for two of its three, a single pair does not.
    assert [answer.status_code for answer in (*answers, pair)] == [200, 429, 200]
    assert 1 <= int(answers[1].headers["Retry-After"]) <= 30
    assert (
        answers[1].json()["detail"].startswith("This API key may send 4 passages a minute: send the request again in")
    )
    assert values(text)["rayrank_client_requests_total shop 200"] == 2
    assert values(text)["rayrank_client_requests_total shop 429"] == 1
    assert values(text)["rayrank_client_passages_total shop"] == 4
    assert [line.get("client") for line in logged(lines, 4)] == ["shop"] * 4
    assert "sesame" not in text + "".join(lines)


@pytest.mark.parametrize("query", ["refused", "overloaded", "unready"])
@pytest.mark.parametrize("path", ["/v1/rerank", "/score"])
def test_a_request_that_no_model_scores_uses_up_no_passages_of_its_key(
    start: Start, tmp_path: Path, path: str, query: str
) -> None:
    (tmp_path / "keys").write_text("sesame passages=3 # shop\n")
    url = start(ServeConfig(name="words", keys_file=str(tmp_path / "keys")))
    headers = {"authorization": "Bearer sesame"}
    texts = {"/score": ("text_1", "text_2")}.get(path, ("query", "documents"))
    refused, answered = (
        requests.post(url + path, json=dict(zip(texts, (text, ["a"] * 3), strict=True)), headers=headers, timeout=10)
        for text in (query, "whales")
    )
    assert refused.status_code == {"refused": 422, "overloaded": 429, "unready": 503}[query]
    assert answered.status_code == 200


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank", "/score", "/predict"])
def test_a_key_above_its_limit_gets_429_in_the_form_of_the_api(start: Start, tmp_path: Path, path: str) -> None:
    (tmp_path / "keys").write_text("sesame requests=1\n")
    url = start(ServeConfig(name="words", keys_file=str(tmp_path / "keys")))
    forms = {"/rerank": {"query": "q", "texts": ["a"]}, "/score": {"text_1": "q", "text_2": "a"},
             "/predict": {"inputs": ["q", "a"]}}  # fmt: skip
    first, second = (
        requests.post(url + path, json=forms.get(path, BODY), headers={"authorization": "Bearer sesame"}, timeout=10)
        for _ in range(2)
    )
    assert (first.status_code, second.status_code) == (200, 429)
    assert 1 <= int(second.headers["Retry-After"]) <= 60
    assert errors_of(path).model_validate(second.json())


def test_pages_run_only_scripts_of_this_server(api: str) -> None:
    for path in ("/", "/docs"):
        page = requests.get(api + path, timeout=10)
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert not re.findall(r"<(?:script|style)>|style=|(?:src|href)=\"(?:https?:)?//", page.text)


def test_docs_need_nothing_from_other_servers(api: str, start: Start) -> None:
    page = requests.get(f"{api}/docs", timeout=10).text
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert {"docs.js", "docs.css", "openapi.json"} <= set(files)
    files += re.findall(r'from "\./([^"]+)"', requests.get(f"{api}/docs.js", timeout=10).text)
    # The page to try the model with may be switched off.
    url = start(ServeConfig(name="words", http=HttpConfig(page=False)))
    for file in files:
        assert requests.get(f"{url}/{file}", timeout=10).status_code == 200, file


@pytest.mark.parametrize(
    ("switch", "off", "on"),
    [
        ("page", ["", "/page.js"], ["/docs", "/style.css", "/docs.js"]),
        ("docs", ["/docs", "/openapi.json", "/docs.js"], ["", "/style.css", "/page.js"]),
    ],
)
def test_pages_can_be_switched_off(start: Start, switch: str, off: list[str], on: list[str]) -> None:
    url = start(ServeConfig(name="words", http=HttpConfig.model_validate({switch: False})))
    assert {requests.get(url + path, timeout=10).status_code for path in off} == {404 if switch == "docs" else 405, 404}
    assert {requests.get(url + path, timeout=10).status_code for path in on} == {200}
    assert post(f"{url}/v1/rerank", BODY).ok
    assert requests.get(f"{url}/info", timeout=10).json()["docs"] is (switch != "docs")
    assert ("/docs" in requests.get(f"{url}/nowhere", timeout=10).text) is (switch != "docs")


def test_explanations_can_be_switched_off(start: Start) -> None:
    url = start(ServeConfig(name="words", http=HttpConfig(explain=False)))
    answer = post(f"{url}/explain", {"query": "a", "document": "b"})
    assert answer.status_code == 404
    assert "http.explain=true" in answer.json()["error"]["message"]
    assert requests.get(f"{url}/info", timeout=10).json()["explain"] is False


def test_pages_of_other_origins_may_call_only_if_the_setting_names_them(start: Start) -> None:
    closed, opened = (
        start(ServeConfig(name="words")),
        start(ServeConfig(name="words", http=HttpConfig(cors="https://shop.example, https://other.example"))),
    )
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST",
             "access-control-request-headers": "authorization,content-type"}  # fmt: skip
    assert (
        "access-control-allow-origin" not in requests.options(f"{closed}/v1/rerank", headers=asked, timeout=10).headers
    )
    allowed = requests.options(f"{opened}/v1/rerank", headers=asked, timeout=10)
    assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://shop.example")
    answer = requests.post(f"{opened}/v1/rerank", json=BODY, headers={"origin": "https://shop.example"}, timeout=10)
    assert answer.headers["access-control-allow-origin"] == "https://shop.example"
    other = requests.options(f"{opened}/v1/rerank", headers={**asked, "origin": "https://evil.example"}, timeout=10)
    assert "access-control-allow-origin" not in other.headers


def test_the_setting_writes_the_access_log_to_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.NOTSET)):
        monkeypatch.setattr(access.log, name, value)
    url = start(ServeConfig(name="words", http=HttpConfig(access_log=True)))
    # The second server of the same process must not write each line twice.
    start(ServeConfig(name="words", http=HttpConfig(access_log=True)))
    requests.get(f"{url}/health", timeout=10)
    written, limit = "", time.monotonic() + 10
    while not written and time.monotonic() < limit:
        time.sleep(0.01)
        written += capsys.readouterr().out
    assert [json.loads(line)["path"] for line in written.splitlines()] == ["/health"]

    # A running replica builds its application anew when its settings change.
    start(ServeConfig(name="words"))
    requests.get(f"{url}/health", timeout=10)
    assert not capsys.readouterr().out
