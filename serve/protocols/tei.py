"""The API of text-embeddings-inference: POST /rerank with `texts`; with `documents`, the path has Infinity's API."""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Discriminator, Field, Tag

from rayrank.serve.protocols.documents import DocumentsAnswer, DocumentsRequest, rerank_documents
from rayrank.serve.protocols.problems import ErrorBody, InfinityError, Problem, TeiError
from rayrank.serve.protocols.route import BODY_STATUSES, Service, Serving, documented, guarded
from rayrank.serve.protocols.wire import FirstStageFields, Query, Texts, scores_of
from rayrank.serve.records import Answer, Ask

MAX_LISTED = 50
"""Positions of truncated texts that the header x-cut-texts lists."""


class TeiRequest(FirstStageFields):
    """A query and the texts to re-rank for it."""

    query: Query
    texts: Texts
    truncate: bool | None = Field(
        default=True, description="whether texts that are too long are truncated (true) or refused (false)"
    )
    truncation_direction: Literal["right", "Right", "left", "Left"] = Field(
        default="right",
        description="right truncates the end of a text; left is not supported: texts that are too long are refused",
    )
    return_text: bool | None = False


class TeiRank(BaseModel):
    """The position of a text in the request, and its score."""

    index: int
    score: float
    text: str | None = None


def form_of(body: Any) -> str:
    """Return the tag of the form of a body, parsed or not."""
    texts = "texts" in body if isinstance(body, dict) else isinstance(body, TeiRequest)
    return "tei-form" if texts else "documents-form"


def errors_of(body: Any) -> type[ErrorBody]:
    """Return the error format of a body's form; without a body, that of text-embeddings-inference."""
    return TeiError if body is None or form_of(body) == "tei-form" else InfinityError


RerankRequest = Annotated[
    Annotated[TeiRequest, Tag("tei-form")] | Annotated[DocumentsRequest, Tag("documents-form")], Discriminator(form_of)
]

router = guarded(errors_of, documented(TeiError | InfinityError, (*BODY_STATUSES, 424)))


@router.post("/rerank", response_model_exclude_none=True, tags=["Re-ranking"])
async def rerank(
    request: RerankRequest, response: Response, service: Serving
) -> list[TeiRank] | DocumentsAnswer:  # fmt: skip
    """Re-rank `texts` as text-embeddings-inference does, or `documents` as Infinity does, whose results hold texts."""
    return await rerank_either(request, response, service)


async def rerank_either(
    request: TeiRequest | DocumentsRequest, response: Response, service: Service
) -> list[TeiRank] | DocumentsAnswer:
    """Re-rank in the form of the request."""
    if isinstance(request, DocumentsRequest):
        return await rerank_documents(request, service, as_texts=True)
    started = time.perf_counter()
    ask = request.ask(request.query, request.texts, "texts")
    fix = None if request.truncate is not False else "set truncate to true to truncate it"
    if request.truncation_direction.lower() == "left":
        fix = "only its end can be truncated, so set truncation_direction to right"
    answer = await unabridged(ask, fix, "texts", response, service, started)
    texts = request.texts if request.return_text else None
    return [
        TeiRank(index=place, score=score, text=texts[place] if texts else None)
        for place, score in scores_of(answer, request.as_logits)
    ]


async def unabridged(
    ask: Ask, fix: str | None, field: str, response: Response, service: Service, started: float,
    query_field: str = "query",
) -> Answer:  # fmt: skip
    """Return the model's answer. If texts must not be truncated, `fix` is the advice in the error for a long text."""
    answer = await service.rerank(ask)
    if fix and (answer.cut or answer.query_cut):
        place = query_field if answer.query_cut else f"{field}.{answer.cut[0]}"
        raise Problem("too_many", f"{place}: longer than the model's maximum input; {fix}.", place)
    response.headers.update(_headers(ask, answer, time.perf_counter() - started))
    return answer


def _headers(ask: Ask, answer: Answer, seconds: float) -> dict[str, str]:
    timing = answer.timing
    times = {"total": seconds, "tokenization": timing.tokenise, "queue": timing.queue, "inference": timing.score}
    headers = {f"x-{name}-time": str(round(value * 1000)) for name, value in times.items()}
    headers["x-compute-type"] = "rayrank"
    headers["x-compute-time"] = headers["x-total-time"]
    headers["x-compute-characters"] = str(len(ask.query) + sum(map(len, ask.passages)))
    headers["x-compute-tokens"] = str(answer.num_tokens)
    if answer.partial:
        headers["x-partial"] = "true"
    return headers | warning_headers(answer.cut, answer.query_cut, answer.warnings)


def warning_headers(cut: Sequence[int], is_query_cut: bool, warnings: Sequence[str]) -> dict[str, str]:
    """Return as headers what `warnings_of` returns, for answers that have no field for it."""
    headers = {}
    if cut:
        more = ["..."] if len(cut) > MAX_LISTED else []
        headers["x-cut-texts"] = ",".join([*map(str, cut[:MAX_LISTED]), *more])
    if is_query_cut:
        headers["x-cut-query"] = "true"
    if warnings:
        # JSON in ASCII, because a header takes neither line breaks nor every character of a request.
        headers["x-warnings"] = json.dumps(warnings)
    return headers
