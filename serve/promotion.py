"""Whether a model may take the place of the one that answers: it scores as in training, and ranks no worse."""

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rayrank.bundle.export import Bundle
from rayrank.bundle.golden import GoldenPair, Parity, parity
from rayrank.bundle.predicted_types import types_for
from rayrank.bundle.text_scorer import score
from rayrank.core.config import EvaluateConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.measure.agreement import kendall_tau, rank_biased_overlap
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.measure.significance import Comparison, Interval, compare, mean_interval
from rayrank.reports.table import difference_text, p_text
from rayrank.scores.interpolation import interpolate
from serve.config import KEYS
from serve.targets import Live, Settings

LEAST_AGREEMENT = 0.3
"""Of Kendall's tau with the live model. Unrelated orders are near 0; two trainings of one model are far above."""

ALPHA, ENOUGH = 0.05, 20
"""A test at this level needs so many judged queries at least; with fewer, agreement counts as well."""

ATTEMPTS, LONGEST_WAIT_S = 8, 5.0
"""How often a busy endpoint is asked, and the longest wait in between."""


@dataclass(frozen=True)
class Replay:
    """A query and its candidates, as they once were asked for; relevance if somebody judged them."""

    query: str
    passages: Sequence[str]
    query_type: str | None = None
    relevance: Sequence[int] | None = None
    first_stage_scores: Sequence[float] | None = None


@dataclass(frozen=True)
class Difference:
    """How a new model ranks replayed queries beside the live one."""

    num_queries: int
    tau: float
    overlap: float
    num_judged: int = 0
    live: Interval | None = None
    new: Interval | None = None
    comparison: Comparison | None = None
    metric: str = MRR_10.name

    def finding(self) -> str:
        """Return the figures as a sentence."""
        text = (
            f"{self.num_queries:,} replayed queries: Kendall's tau {self.tau:.3f}, rank-biased overlap "
            f"{self.overlap:.3f} with the live model"
        )
        if not (self.comparison and self.live and self.new):
            return text
        return (
            f"{text}; {self.metric} {self.live.mean:.4f} -> {self.new.mean:.4f} on {self.num_judged:,} judged ones "
            f"({difference_text(self.comparison)}, p {p_text(self.comparison.p_value)})"
        )

    def objection(self) -> str:
        """Return what speaks against the new model, if anything: the metric where judged, the agreement elsewhere."""
        found = self.comparison
        if found is not None and found.difference < 0 and found.p_value < ALPHA:
            return f"{self.metric} falls by {-found.difference:.4f} (p {p_text(found.p_value)})"
        if self.num_judged < ENOUGH and self.tau < LEAST_AGREEMENT:
            return f"Kendall's tau with the live model is {self.tau:.3f}, below {LEAST_AGREEMENT}"
        return ""


def promoted(live: Live, model: str) -> Settings:
    """Return the settings with another model, which remember the one before."""
    if Path(live.model) == Path(model):
        raise ConfigError(f"--model {model} is the one that answers already: name another.")
    settings = {**live.settings, "model": model, "previous": live.model}
    # A name that was given stays; one that came from the folder follows it.
    if live.settings.get("name") == Path(live.model).name:
        settings["name"] = Path(model).name
    return settings


def turned_back(live: Live) -> Settings:
    """Return the settings with the model before, so that turning back twice changes nothing."""
    if not live.settings.get("previous"):
        raise ConfigError(f"--back has nothing to go back to: no model was promoted over {live.model or 'any'}.")
    return promoted(live, live.settings["previous"])


class Endpoint:
    """The running endpoint, as any client sees it; the first key of the environment is ours."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        key = os.environ.get(KEYS, "").split(",")[0].strip()
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})

    def scores(self, replay: Replay) -> list[float]:
        """Return the logit of each passage."""
        body = {"query": replay.query, "documents": list(replay.passages), "raw_scores": True}
        if replay.query_type:
            body["query_type"] = replay.query_type
        found = {result["index"]: result["relevance_score"] for result in self._send("/v1/rerank", body)["results"]}
        return [float(found[place]) for place in range(len(replay.passages))]

    def is_exact(self) -> bool:
        """Return whether it computes as training's side does here: float32 on a CPU."""
        info = self._send("/info")
        return bool(info["backend"] == "torch" and info["device"] == "cpu")

    def first_stage_weight(self) -> float:
        """Return what the first stage's scores count; nothing with a version that does not say."""
        return float(self._send("/info").get("first_stage_weight", 0))

    def _send(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, self._headers)
        for attempt in range(ATTEMPTS):
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code not in (429, 503) or attempt == ATTEMPTS - 1:
                    detail = error.read(300).decode(errors="replace")
                    raise self._unusable(f"it answers {error.code}, {detail}") from None
                time.sleep(min(float(error.headers.get("Retry-After") or 1), LONGEST_WAIT_S))
            except (OSError, ValueError) as error:
                raise self._unusable(str(getattr(error, "reason", error))) from None
        raise AssertionError

    def _unusable(self, reason: str) -> ConfigError:
        return ConfigError(f"--endpoint {self._url} cannot be compared with: {reason}; name the live one, or --force.")


def golden_replays(pairs: Sequence[GoldenPair]) -> list[Replay]:
    """Return the golden queries with their passages."""
    queries: dict[tuple[str, str | None], list[str]] = {}
    for pair in pairs:
        queries.setdefault((pair.query, pair.query_type), []).append(pair.passage)
    return [Replay(query, passages, kind) for (query, kind), passages in queries.items()]


def endpoint_parity(endpoint: Endpoint, pairs: Sequence[GoldenPair]) -> Parity:
    """Return how the endpoint scores golden pairs."""
    # Golden pairs of a query stand together, so that their order is that of the replays.
    found = [score for replay in golden_replays(pairs) for score in endpoint.scores(replay)]
    return parity(pairs, found)


def new_scores(exported: Bundle, replays: Sequence[Replay]) -> list[list[float]]:
    """Return the logits of a model that is not live yet."""
    kinds = types_for(exported, [replay.query for replay in replays], [replay.query_type for replay in replays])
    types = kinds and [kind for replay, kind in zip(replays, kinds, strict=True) for _ in replay.passages]
    queries = [replay.query for replay in replays for _ in replay.passages]
    values = score(exported, queries, [passage for replay in replays for passage in replay.passages], types)
    ends = np.cumsum([len(replay.passages) for replay in replays])
    return [part.tolist() for part in np.split(values, ends[:-1])]


def as_shown(replays: Sequence[Replay], logits: Sequence[Sequence[float]], weight: float) -> list[Sequence[float]]:
    """Return what clients see ordered: logits, interpolated with the first stage's scores where a replay has them."""
    return [
        scores if replay.first_stage_scores is None
        else interpolate(np.asarray(scores), np.asarray(replay.first_stage_scores), weight).tolist()
        for replay, scores in zip(replays, logits, strict=True)
    ]  # fmt: skip


def difference(
    replays: Sequence[Replay], live: Sequence[Sequence[float]], new: Sequence[Sequence[float]], config: EvaluateConfig,
    measure: Measure = MRR_10,
) -> Difference:  # fmt: skip
    """Compare two models' scores of the same replays, by the measure where a passage was judged relevant."""
    pairs = list(zip(live, new, strict=True))
    tau, overlap = (float(np.mean([alike(*pair) for pair in pairs])) for alike in (kendall_tau, rank_biased_overlap))
    judged = [place for place, replay in enumerate(replays) if max(replay.relevance or [0]) >= measure.relevant_from]
    if not judged:
        return Difference(len(replays), tau, overlap)
    relevance = [replays[place].relevance or () for place in judged]
    qrels = _rows(relevance, "relevance", pa.int32())
    before, after = (
        measure.values(qrels, _rows([scores[place] for place in judged], "score", pa.float32()))
        for scores in (live, new)
    )
    found = compare(after, before, config.test, config.resamples, config.seed)
    means = (mean_interval(values, config.resamples, config.seed) for values in (before, after))
    return Difference(len(replays), tau, overlap, len(judged), next(means), next(means), found, measure.name)


def _rows(lists: Sequence[Sequence[float]], name: str, kind: pa.DataType) -> pa.Table:
    """Return lists as rows; ties are broken by id, the last first, so that the first passage gets the last id."""
    places = [(query, -place) for query, values in enumerate(lists) for place in range(len(values))]
    return pa.table(
        {
            "query_id": [f"{query}" for query, _ in places],
            "passage_id": [f"{place + 10**9:010d}" for _, place in places],
            name: pa.array([value for values in lists for value in values], kind),
        }
    )


def read_replays(file: str, judgments: str | None) -> list[Replay]:
    """Return the queries of a JSONL file; judgments are in its lines, or in a TREC qrels file by their ids."""
    judged = dict(_judgments(judgments)) if judgments else None
    replays = []
    for number, line in _lines(file, "--queries"):
        try:
            replays.append(_replay(json.loads(line), judged))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise DatasetError(
                f'--queries {file}, line {number} cannot be read: {reason}; write {{"query": ..., "documents": [...]}}.'
            ) from None
    if not replays:
        raise DatasetError(f"--queries {file} has no queries: write one a line.")
    return replays


def _replay(entry: dict[str, Any], judged: dict[tuple[str, str], int] | None) -> Replay:
    documents, relevance = entry["documents"], entry.get("relevance")
    texts = [document if isinstance(document, str) else str(document["text"]) for document in documents]
    if not texts:
        raise ValueError("documents is empty")
    if judged is not None:
        query_id = str(entry["query_id"])
        relevance = [judged.get((query_id, str(document["id"])), 0) for document in documents]
    first = entry.get("first_stage_scores")
    for name, values in (("relevance", relevance), ("first_stage_scores", first)):
        if values is not None and len(values) != len(texts):
            raise ValueError(f"{name} has {len(values)} values for {len(texts)} documents")
    return Replay(
        str(entry["query"]), texts, entry.get("query_type"),
        relevance and [int(each) for each in relevance], first and [float(each) for each in first],
    )  # fmt: skip


def _judgments(file: str) -> Iterator[tuple[tuple[str, str], int]]:
    for number, line in _lines(file, "--judgments"):
        try:
            query_id, _, passage_id, relevance = line.split()
            yield (query_id, passage_id), int(relevance)
        except ValueError:
            raise DatasetError(
                f"--judgments {file}, line {number} cannot be read: write `query_id 0 passage_id relevance`."
            ) from None


def _lines(file: str, option: str) -> Iterator[tuple[int, str]]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise DatasetError(f"{option} {file} cannot be read: {reason}; name another file.") from None
    return ((number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip())
