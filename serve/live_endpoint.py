"""An HTTP client of the live endpoint, which asks it for the scores of replayed queries."""

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from rayrank.core.errors import ConfigError
from rayrank.serve.keys import first_key
from rayrank.serve.replays import Replay

ATTEMPTS, LONGEST_WAIT_S = 8, 5.0
"""Attempts on a busy endpoint, and the longest wait between two of them in seconds."""


class Scores(NamedTuple):
    """The scores of a replay's passages."""

    logits: list[float]
    fused: list[float] | None = None
    """The scores that decide the order instead, if they were fused."""


class Endpoint:
    """A client of the live endpoint; it uses the first API key of the environment variable."""

    def __init__(self, url: str, model: str = "") -> None:
        """Take the URL, and the name of the model if the endpoint has several."""
        self._url, self._model = url.rstrip("/"), model
        self._headers = {"Content-Type": "application/json"}
        if key := first_key():
            self._headers["Authorization"] = f"Bearer {key}"

    def scores(self, replay: Replay) -> Scores:
        """Return the scores of the passages, which may be fused with the replay's fields and first-stage scores."""
        body: dict[str, Any] = {"query": replay.query, "documents": list(replay.passages), "raw_scores": True}
        if replay.fields is not None:
            pairs = zip(replay.passages, replay.fields, strict=True)
            body["documents"] = [{"text": text, "fields": own} for text, own in pairs]
        if self._model:
            body["model"] = self._model
        if replay.query_type:
            body["query_type"] = replay.query_type
        if replay.first_stage_scores is not None:
            body["first_stage_scores"] = list(replay.first_stage_scores)
        found = sorted(self._send("/v1/rerank", body)["results"], key=lambda result: result["index"])
        logits, fused = ([result.get(name) for result in found] for name in ("relevance_score", "fused_score"))
        return Scores(logits, None if None in fused else fused)

    def is_exact(self) -> bool:
        """Return whether the endpoint computes in float32 on a CPU, as the check of golden scores does."""
        info = self._info()
        return bool(info["backend"] == "torch" and info["device"] == "cpu")

    def first_stage_weight(self) -> float:
        """Return the weight of first-stage scores, or 0 for an endpoint of a version that does not report it."""
        return float(self._info().get("first_stage_weight", 0))

    def has_fusion(self) -> bool:
        """Return whether the model's scores are fused for requests that bring the features."""
        return bool(self._info().get("fusion"))

    def load_error(self) -> str | None:
        """Return why the replica that answers has not loaded the model of its settings; None if it has."""
        found: str | None = self._info().get("load_error")
        return found

    def _info(self) -> Any:
        query = f"?{urllib.parse.urlencode({'model': self._model})}" if self._model else ""
        return self._send(f"/info{query}")

    def _send(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        for attempt in range(ATTEMPTS):
            try:
                request = urllib.request.Request(self._url + path, data, self._headers)
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or attempt == ATTEMPTS - 1:
                    detail = error.read(300).decode(errors="replace")
                    raise self._unusable(f"it answers {error.code}, {detail}") from None
                time.sleep(min(_seconds(error.headers.get("Retry-After", "")), LONGEST_WAIT_S))
            except (OSError, ValueError, http.client.HTTPException) as error:
                raise self._unusable(" ".join(str(getattr(error, "reason", error)).split())) from None
        raise AssertionError

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(
            f"--endpoint {self._url} cannot be used for the comparison: {reason}; name the live endpoint, or --force."
        )


def _seconds(retry_after: str) -> float:
    """Return the wait of a Retry-After header; a second without one, or if a proxy sends a date."""
    return float(retry_after) if retry_after.isdecimal() else 1.0
