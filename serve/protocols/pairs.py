"""Scores of pairs of texts, in the order of the request: the pairs that share a query are one request to the model."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rayrank.serve.limits import charged
from rayrank.serve.protocols.route import Service
from rayrank.serve.records import Answer, Ask

MAX_CONCURRENT = 32
"""Queries of one request that are sent to the model at the same time: all of them at once could fill its queue."""


@dataclass(frozen=True)
class Scored:
    """The scores of pairs, and the sums of the model's answers."""

    logits: list[float | None]
    """None for a pair that was not scored before the deadline."""
    probabilities: list[float | None]
    cut: list[int]
    """Positions of pairs whose passage was truncated."""
    queries_cut: list[int]
    """Positions of pairs whose query was truncated."""
    warnings: list[str]
    num_tokens: int
    partial: bool
    model: str


async def score_pairs(
    service: Service, queries: Sequence[str], passages: Sequence[str],
    query_type: str | None = None, deadline_ms: float | None = None, model: str | None = None,
) -> Scored:  # fmt: skip
    """Return the scores of pairs of a query and a passage."""
    rows: dict[str, list[int]] = {}
    for row, query in enumerate(queries):
        rows.setdefault(query, []).append(row)
    asks = [
        Ask(query, [passages[row] for row in own], query_type, deadline_ms=deadline_ms, model=model)
        for query, own in rows.items()
    ]
    service.backend(model)  # a wrong name is refused before anything is charged
    # All at once, so that a limit does not refuse the last ones when the others are scored.
    with charged(len(passages)):
        answers = await _all(asks, service)
    parts = list(zip(answers, rows.values(), strict=True))
    found = Scored(
        [None] * len(queries), [None] * len(queries),
        cut=sorted(own[place] for answer, own in parts for place in answer.cut),
        queries_cut=sorted(row for answer, own in parts if answer.query_cut for row in own),
        warnings=list(dict.fromkeys(warning for answer in answers for warning in answer.warnings)),
        num_tokens=sum(answer.num_tokens for answer in answers),
        partial=any(answer.partial for answer in answers), model=answers[0].model,
    )  # fmt: skip
    for answer, own in parts:
        for place, row in enumerate(own):
            found.logits[row], found.probabilities[row] = answer.logits[place], answer.probabilities[place]
    return found


async def _all(asks: list[Ask], service: Service) -> list[Answer]:
    free = asyncio.Semaphore(MAX_CONCURRENT)

    async def answer(ask: Ask) -> Answer:
        async with free:
            return await service.answer(ask)

    try:
        # In a task group, the first failure cancels the other requests, which then leave the queue.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(answer(ask)) for ask in asks]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]
