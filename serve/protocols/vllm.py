"""vLLM's API to score pairs: POST /score."""

import asyncio
import time
import uuid
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from rayrank.serve.protocols.problems import DetailError, Problem
from rayrank.serve.protocols.route import Service, Serving, documented, guarded
from rayrank.serve.protocols.wire import OwnFields, Usage, cut_warnings, usage_of
from rayrank.serve.records import Answer, Ask

Side = Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]
MAX_CONCURRENT = 32
"""Queries of one request that are sent to the model at the same time: all of them at once could fill its queue."""

FIELD_PAIRS = (("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2"))
QUERY_FIELDS = {documents: queries for queries, documents in FIELD_PAIRS}


class ScoreRequest(OwnFields):
    """One query and many documents, or as many queries as documents, under any of three pairs of names."""

    queries: Side | None = None
    documents: Side | None = None
    text_1: Side | None = None
    text_2: Side | None = None
    data_1: Side | None = None
    data_2: Side | None = None
    model: str | None = None

    def pairs(self) -> tuple[list[str], list[str], str]:
        """Return the query of each pair, the document of each pair, and the field name of the documents."""
        for first, second in FIELD_PAIRS:
            queries, documents = getattr(self, first), getattr(self, second)
            if queries is not None and documents is not None:
                left, right = [[side] if isinstance(side, str) else side for side in (queries, documents)]
                if len(left) not in (1, len(right)):
                    message = f"{first} has {len(left)} texts for {len(right)} {second}: send one, or one for each."
                    raise Problem("invalid", message, first)
                return left * (len(right) // len(left)), right, second
        raise Problem(
            "invalid", "queries: send it with documents, or text_1 with text_2, or data_1 with data_2.", "queries"
        )


class Score(BaseModel):
    """The score of one pair."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreAnswer(BaseModel):
    """The scores of all pairs, in the order of the request."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: Usage
    warnings: list[str] | None = None
    partial: bool = Field(
        description="whether the deadline passed before all pairs were scored; the others are left out"
    )


router = guarded(lambda body: DetailError, documented(DetailError))


@router.post("/score", response_model_exclude_none=True, tags=["Re-ranking"])
async def score(request: ScoreRequest, service: Serving) -> ScoreAnswer:
    """Score pairs of texts (vLLM)."""
    queries, documents, field = request.pairs()
    rows: dict[str, list[int]] = {}
    for row, query in enumerate(queries):
        rows.setdefault(query, []).append(row)
    asks = [_ask(request, query, [documents[row] for row in own]) for query, own in rows.items()]
    answers = await _all(asks, service)
    parts = list(zip(answers, rows.values(), strict=True))
    return ScoreAnswer(
        id=f"score-{uuid.uuid4().hex}", created=int(time.time()), model=answers[0].model,
        data=sorted(_scores(parts, request.raw_scores), key=lambda each: each.index),
        usage=usage_of(sum(answer.num_tokens for answer in answers)),
        warnings=_warnings(parts, field) or None,
        partial=any(answer.partial for answer in answers),
    )  # fmt: skip


def _ask(request: ScoreRequest, query: str, passages: list[str]) -> Ask:
    return Ask(query, passages, request.query_type, deadline_ms=request.deadline_ms)


async def _all(asks: list[Ask], service: Service) -> list[Answer]:
    free = asyncio.Semaphore(MAX_CONCURRENT)

    async def answer(ask: Ask) -> Answer:
        async with free:
            return await service.rerank(ask)

    try:
        # In a task group, the first failure cancels the other requests, which then leave the queue.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer(ask)) for ask in asks]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _warnings(parts: list[tuple[Answer, list[int]]], field: str) -> list[str]:
    """Return the warnings of all answers; a text is named by its position among the pairs."""
    queries = sorted(row for answer, own in parts if answer.query_cut for row in own)
    documents = sorted(own[place] for answer, own in parts for place in answer.cut)
    of_model = dict.fromkeys(warning for answer, _ in parts for warning in answer.warnings)
    return [*cut_warnings(queries, QUERY_FIELDS[field]), *cut_warnings(documents, field), *of_model]


def _scores(parts: list[tuple[Answer, list[int]]], raw: bool | None) -> Iterator[Score]:
    for answer, own in parts:
        for place, value in enumerate(answer.logits if raw else answer.probabilities):
            if value is not None:
                yield Score(index=own[place], score=value)
