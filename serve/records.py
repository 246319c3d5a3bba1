"""What passes between the wire protocols and the model, whatever dialect a client speaks."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Ask:
    """Passages to put in order for a query, after a protocol is peeled off."""

    query: str
    passages: Sequence[str]
    query_type: str | None = None
    """Predicted if empty, where the model reads types."""
    first_stage_scores: Sequence[float] | None = None
    first_stage_weight: float | None = None
    """How much the first stage counts, from 0 (not) to 1 (alone), both brought to 0-1 within the request; what was
    learnt on dev if empty."""
    deadline_ms: float | None = None
    """Of the whole work; what is not scored by then is left out, the first stage's best being scored first."""
    asked: float = field(default_factory=time.time)
    """When; a deadline counts from then, wherever the request waits. Nodes of a cluster are taken to have one time."""

    def left(self) -> float | None:
        """Return the seconds until the deadline; a moment if it is over."""
        if self.deadline_ms is None:
            return None
        return max(0.001, self.deadline_ms / 1000 - max(0.0, time.time() - self.asked))


@dataclass(frozen=True)
class Timing:
    """Where the seconds of one request went."""

    tokenise: float = 0.0
    queue: float = 0.0
    score: float = 0.0


@dataclass(frozen=True)
class Answer:
    """Scores in the order of the passages asked for, and the order they put them in."""

    logits: Sequence[float | None]
    """None where the deadline came first."""
    probabilities: Sequence[float | None]
    """The logits after calibration, or through a sigmoid where the model has none."""
    order: Sequence[int]
    """Places of the scored passages, best first: by logit or, if the first stage counts, by both."""
    num_tokens: int
    """Word pieces that were scored, queries counted once a passage."""
    cut: Sequence[int] = ()
    """Places of passages that were too long and were read up to the model's length."""
    query_type: str | None = None
    partial: bool = False
    model: str = ""
    timing: Timing = field(default_factory=Timing)

    @classmethod
    def of_nothing(cls, ask: Ask, model: str, timing: Timing | None = None) -> "Answer":
        """Return what there is to say when the deadline comes before any score."""
        nothing = [None] * len(ask.passages)
        return cls(
            nothing, nothing, [], 0, query_type=ask.query_type, partial=True, model=model, timing=timing or Timing()
        )  # fmt: skip


@dataclass(frozen=True)
class Info:
    """What a client may want to know about the model that answers."""

    model: str
    backend: str
    device: str
    length: int
    """Word pieces of a query and a passage together."""
    query_types: Sequence[str] = ()
    strm: str = "off"
    first_stage_weight: float = 0.0
    """What the first stage's scores count where they are sent without a weight."""
    calibration: dict[str, Any] | None = None
    """Its kind, and how far probabilities were off on held-out pairs (ECE) before and after; None if there is none."""
    version: str = ""


@dataclass(frozen=True)
class Hit:
    """A passage that the first stage found."""

    passage_id: str
    text: str
    score: float


class Overloaded(Exception):
    """The queue is full; carries the seconds after which to ask again."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(retry_after)
        self.retry_after = retry_after


class Unready(Exception):
    """No model is there to answer yet, or not any more."""


class Backend(Protocol):
    """What the wire protocols need; behind it is a Ray Serve handle, or a model in this process."""

    async def rerank(self, ask: Ask) -> Answer:
        """Return scores and order; raises Overloaded or Unready."""

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        """Return why a passage got its score, as plain values for JSON."""

    async def info(self) -> Info:
        """Return what answers."""

    async def search(self, query: str, depth: int) -> list[Hit]:
        """Return the first stage's hits, best first."""
