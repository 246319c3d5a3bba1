"""Requests to the model and its answers, the same for every API that a client may use."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client.metrics_core import Metric

MAX_FIELDS = 100
"""Entries of a document's `fields`."""


@dataclass(frozen=True)
class Ask:
    """A query and the passages to re-rank for it."""

    query: str
    passages: Sequence[str]
    query_type: str | None = None
    """Predicted if None and the model was trained with query types."""
    first_stage_scores: Sequence[float] | None = None
    first_stage_weight: float | None = None
    """Share of the first stage in the final score, from 0 (model only) to 1 (first stage only). Both scores are first
    rescaled to 0-1 within the request. None means the weight tuned on the dev set, which is part of the export."""
    deadline_ms: float | None = None
    """Milliseconds from `received_at` to the answer. The first stage's best passages are scored first; passages that
    are not scored in time are left out of the answer."""
    received_at: float = field(default_factory=time.time)
    """Wall-clock time at which the request arrived. The nodes of a cluster are assumed to have synchronised clocks."""
    resent_at: float = 0.0
    """Wall-clock time at which it was last sent to another replica because its replica had died; 0 if it never was."""
    max_tokens: int | None = None
    """Word pieces that are read of each passage; None means as many as the model reads."""
    min_relevance: float | None = None
    """Passages that are less likely to be relevant are left out of the order."""
    min_precision: float | None = None
    """Passages below the threshold that gave this precision on dev are left out of the order."""
    model: str | None = None
    """The model that the client names; None means the first one."""
    fields: Sequence[Mapping[str, float]] | None = None
    """For each passage the values of named features, such as its age or its price."""
    num_windows: int = 0
    """For how many of the best passages the answer says where their best windows are, if there is time for it."""

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline: a millisecond if it has passed, None without a deadline."""
        if self.deadline_ms is None:
            return None
        return max(0.001, self.deadline_ms / 1000 - self.seconds_ago())

    def seconds_ago(self) -> float:
        """Return the seconds since the request arrived."""
        return max(0.0, time.time() - self.received_at)

    def seconds_waited(self) -> float:
        """Return the seconds that count as waiting: not those that a replica which died has cost."""
        return max(0.0, time.time() - max(self.received_at, self.resent_at))


@dataclass(frozen=True)
class Timing:
    """Seconds that one request spent in each step."""

    tokenise: float = 0.0
    queue: float = 0.0
    score: float = 0.0


@dataclass(frozen=True)
class Answer:
    """The scores of a request's passages, in the order of the request, and the new order."""

    logits: Sequence[float | None]
    """None for a passage that was not scored before the deadline."""
    probabilities: Sequence[float | None]
    """Calibrated logits, or their sigmoid if the model has no calibration."""
    order: Sequence[int]
    """Positions of the scored passages that are likely enough for the request, best first: by logit, or by logit and
    first-stage score if the latter has a weight."""
    num_tokens: int
    """Word pieces that were scored; the query counts once per passage."""
    cut: Sequence[int] = ()
    """Positions of passages that were truncated to the model's maximum length."""
    query_cut: bool = False
    """Whether the end of the query was not read."""
    warnings: Sequence[str] = ()
    """Sentences about the request as a whole, such as one on a query type that the model does not know."""
    fused: Mapping[int, float] = field(default_factory=dict)
    """By position: the scores that decided the order, if the model's folder has a fusion and the request its
    features."""
    windows: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """For the best passages that were read in windows, by position: the first character of the best window, and the one
    after its last."""
    query_type: str | None = None
    partial: bool = False
    model: str = ""
    timing: Timing = field(default_factory=Timing)
    num_cached: int = 0
    """Passages whose word pieces were in the replica's cache."""

    @classmethod
    def unscored(cls, ask: Ask, model: str, timing: Timing | None = None) -> "Answer":
        """Return the answer to a request whose deadline passed before any passage was scored."""
        missing = [None] * len(ask.passages)
        return cls(
            missing, missing, [], 0, query_type=ask.query_type, partial=True, model=model, timing=timing or Timing()
        )  # fmt: skip


@dataclass(frozen=True)
class Info:
    """Facts about the served model."""

    model: str
    backend: str
    device: str
    length: int
    """Maximum number of word pieces of a query and a passage together."""
    query_types: Sequence[str] = ()
    strm: str = "off"
    first_stage_weight: float = 0.0
    """Weight of first-stage scores that a client sends without a weight."""
    calibration: dict[str, Any] | None = None
    """The method, and the expected calibration error (ECE) on held-out pairs before and after; None without one."""
    fusion: dict[str, Any] | None = None
    """The features that the model's scores are fused with; None without a fusion."""
    precision: dict[str, Any] | None = None
    """The table of thresholds by wanted precision (`scores/precision.py`); None without one."""
    version: str = ""
    dtype: str = "float32"
    batch_tokens: int = 0
    """Word pieces of a batch."""
    tokenisers: int = 1
    """Threads that tokenise texts."""
    load_error: str | None = None
    """Why the replica that answers has not loaded the model that its settings name, and serves the one before."""


@dataclass(frozen=True)
class Piece:
    """A word piece of a text, and the characters that it covers."""

    id: int
    text: str
    special: bool
    start: int | None = None
    """None for a special piece, which covers no characters."""
    end: int | None = None


@dataclass(frozen=True)
class Hit:
    """A passage that the first stage found."""

    passage_id: str
    text: str
    score: float


@dataclass(frozen=True)
class Load:
    """What a replica of a model is busy with."""

    model: str
    num_queued: int
    """Pairs that no batch has taken yet."""
    is_ready: bool = True
    """Whether its scorer scores: it has not worked on a batch for far longer than the batch needs, and the last batch
    did not fail."""


@dataclass(frozen=True)
class Figures:
    """What an ingress replica knows when a scrape of any replica asks for it."""

    ingress: str
    """A name of this replica that no other one has had."""
    known: Mapping[str, list[Metric]]
    """The counters of this replica, and the last ones that it knows of others, by their names."""
    num_in_flight: int


class Overloaded(Exception):
    """Too much is waiting already; `retry_after` is the number of seconds after which to try again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class Unready(Exception):
    """No replica of the model is running, or its scorer is stuck."""


class TimedOut(Exception):
    """A request has not been answered within `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


class Backend(Protocol):
    """A model as the HTTP routes see it: a Ray Serve handle, or a model in the same process."""

    name: str
    """The model's name in its last answer; before the first answer, the name in the settings."""

    async def rerank(self, ask: Ask) -> Answer:
        """Return the scores and the order of the passages; raises Overloaded or Unready."""

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        """Return the reasons for a passage's score as JSON values."""

    async def info(self) -> Info:
        """Describe the model."""

    async def loads(self) -> list[Load]:
        """Return the load of each replica of the model that answers at once."""

    async def ingresses(self) -> list[Figures]:
        """Return the figures of each ingress replica that answers at once."""

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        """Return the word pieces of each text, up to the model's maximum length; raises Overloaded or Unready."""

    async def ready(self) -> None:
        """Return if the model scores; raises Unready if not."""

    async def search(self, query: str, depth: int) -> list[Hit]:
        """Return the first stage's hits, best first."""
