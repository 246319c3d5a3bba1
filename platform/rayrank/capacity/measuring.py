"""Loads a running endpoint for a short time, with increasing rates, and measures its latency."""

import http.client
import json
import random
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from rayrank.capacity.load import NUMBER, Load, ask, figures
from rayrank.capacity.records import Capacity, LoadCurve, LoadPoint
from rayrank.core.copies import temporary_folder
from rayrank.core.errors import ConfigError

ROUTE = "/v1/rerank"
CLIENTS = 16
"""Concurrent clients that saturate the endpoint, so that its highest throughput is known."""
SHARES = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Loads that are offered, as shares of the highest throughput."""
FEWEST, LONGEST = 30, 6
"""A load has at least FEWEST requests, because a p95 of fewer says little; it may last up to LONGEST times as long as
asked to reach them."""
BODIES = 200
DESCRIBED = ("model_id", "device", "backend", "model_dtype")
"""Fields of /info that the measurement names."""
WORDS = (
    "the of and a in to is for with on by as at from that this which after before between water river city house "
    "school claim policy premium doctor patient treatment engine station network village mountain history century"
).split()

Texts = Sequence[tuple[str, Sequence[str]]]
"""Queries, each with the documents of its request."""


def generated(words: int) -> Texts:
    """Return queries and documents of random words; each has half to one and a half times the mean number."""
    rng = random.Random(13)

    def text(mean: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(max(1, mean // 2), max(1, 3 * mean // 2))))

    return [(text(8), [text(words) for _ in range(10)]) for _ in range(BODIES)]


def measure(
    url: str, texts: Texts, about: str, documents: Sequence[int], seconds: float, key: str, say: Callable[[str], None]
) -> Capacity:  # fmt: skip
    """Return the curve of an endpoint for each number of documents in a request; `about` says what the texts are."""
    url = url.rstrip("/")
    model, device, backend, dtype = _described(url, key)
    with temporary_folder() as folder:
        curves = tuple(_curve(url, model, texts, count, seconds, key, folder, say) for count in documents)
    every = [passage for _, passages in texts for passage in passages]
    return Capacity(
        model=model, device=device, backend=backend, dtype=dtype,
        created=datetime.now(UTC).isoformat(timespec="minutes"), texts=about,
        words=sum(len(passage.split()) for passage in every) / len(every), curves=curves,
    )  # fmt: skip


def _curve(
    url: str, model: str, texts: Texts, documents: int, seconds: float, key: str, folder: Path,
    say: Callable[[str], None],
) -> LoadCurve:  # fmt: skip
    file = folder / f"{documents}.jsonl"
    file.write_text("\n".join(map(json.dumps, _bodies(texts, documents))), encoding="utf-8")

    def load(rate: float = 0, clients: int = 0) -> Load:
        lasting = min(LONGEST * seconds, max(seconds, FEWEST / rate)) if rate else seconds
        return ask(url + ROUTE, str(file), lasting, [rate] if rate else (), clients, key)

    load(clients=1)  # warms the endpoint up
    full = load(clients=CLIENTS)
    if not any(sample.is_answered for sample in full.samples):
        statuses = sorted({str(sample.status or "no answer") for sample in full.samples})
        raise ConfigError(
            f"--measure {url} answered no request of {documents} documents ({', '.join(statuses)}): check its log, or "
            f"ask for fewer --documents."
        )
    saturation = figures(full).achieved / documents
    say(f"{documents} documents per request: at most {saturation:.3g} requests/s")
    points = []
    for share in SHARES:
        found = figures(load(rate=share * saturation))
        point = LoadPoint(
            rps=found.offered / documents, achieved=found.achieved / documents, p50=found.p50, p95=found.p95,
            p99=found.p99, num_requests=found.num_requests, failures=sum(found.failures.values()),
            replicas=_replicas(url, model, key),
        )  # fmt: skip
        say(f"  {point.rps:.3g} requests/s: p95 {1000 * point.p95:,.0f} ms, {point.failures} failures")
        points.append(point)
    return LoadCurve(documents=documents, points=tuple(points))


def _bodies(texts: Texts, documents: int) -> Iterator[dict[str, Any]]:
    """Yield a request for each query: its own documents, and then those of the next queries.

    Each document begins with another number whenever it is sent, so that the endpoint has to tokenise it."""
    for place in range(len(texts)):
        chosen: list[str] = []
        following = place
        while len(chosen) < documents:
            chosen += texts[following % len(texts)][1]
            following += 1
        yield {"query": texts[place][0], "documents": [f"{NUMBER} {text}" for text in chosen[:documents]]}


def _described(url: str, key: str) -> list[str]:
    """Return what /info says about the model that the load goes to: the endpoint's first one."""
    try:
        info = json.loads(_get(f"{url}/info", key))
    except ValueError:
        info = None
    found: list[Any] = [info.get(name) for name in DESCRIBED] if isinstance(info, dict) else [None]
    if not all(isinstance(value, str) for value in found):
        raise ConfigError(
            f"--measure {url} cannot be used: its /info does not tell {', '.join(DESCRIBED)}; name the URL of a "
            f"running rayrank endpoint."
        )
    return found


def _replicas(url: str, model: str, key: str) -> int:
    """Return the replicas of the model that answer now, as /metrics counts them."""
    for family in text_string_to_metric_families(_get(f"{url}/metrics", key).decode()):
        for sample in family.samples:
            if sample.name == "rayrank_model_replicas" and sample.labels.get("model") == model:
                return max(1, round(sample.value))
    return 1


def _get(url: str, key: str) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            content: bytes = answer.read()
            return content
    except urllib.error.HTTPError as error:
        advice = "set RAYRANK_API_KEYS" if error.code == 401 else "name the URL of a running rayrank endpoint"
        raise ConfigError(f"--measure cannot be used: {url} answers {error.code}; {advice}.") from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split())
        raise ConfigError(
            f"--measure cannot be used: {url} does not answer ({reason}); start one with rayrank serve."
        ) from None
