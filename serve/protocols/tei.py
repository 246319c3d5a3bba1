"""The API of text-embeddings-inference: POST /rerank with `texts`, and /similarity for huggingface_hub's client."""

import json
import time
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Discriminator, Field, Tag

from rayrank.serve.protocols.documents import DocumentsAnswer, DocumentsRequest, rerank_documents
from rayrank.serve.protocols.problems import ErrorBody, Problem, SharedError, TeiError
from rayrank.serve.protocols.route import BODY_STATUSES, Service, Serving, documented, guarded
from rayrank.serve.protocols.wire import FirstStageFields, Query, Texts, Wire, scores_of
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


def _form(body: Any) -> str:
    texts = "texts" in body if isinstance(body, dict) else isinstance(body, TeiRequest)
    return "tei-form" if texts else "documents-form"


def _errors(body: Any) -> type[ErrorBody]:
    return TeiError if body is None or _form(body) == "tei-form" else SharedError


RerankRequest = Annotated[
    Annotated[TeiRequest, Tag("tei-form")] | Annotated[DocumentsRequest, Tag("documents-form")], Discriminator(_form)
]

router = guarded(_errors, documented(TeiError | SharedError, (*BODY_STATUSES, 424)))
similarity_router = guarded(lambda body: TeiError, documented(TeiError, (*BODY_STATUSES, 424)))


@router.post("/rerank", response_model_exclude_none=True, tags=["Re-ranking"])
async def rerank(
    request: RerankRequest, response: Response, service: Serving
) -> list[TeiRank] | DocumentsAnswer:  # fmt: skip
    """Re-rank `texts` as text-embeddings-inference does, or `documents` as /v1/rerank does."""
    if isinstance(request, DocumentsRequest):
        return await rerank_documents(request, service)
    started = time.perf_counter()
    ask = request.ask(request.query, request.texts, "texts")
    fix = None if request.truncate is not False else "set truncate to true to truncate it"
    if request.truncation_direction.lower() == "left":
        fix = "only its end can be truncated, so set truncation_direction to right"
    answer = await _answer(ask, fix, "texts", response, service, started)
    texts = request.texts if request.return_text else None
    return [
        TeiRank(index=place, score=score, text=texts[place] if texts else None)
        for place, score in scores_of(answer, request.raw_scores)
    ]


class Sentences(Wire):
    """A sentence and the sentences to compare it with."""

    source_sentence: Query
    sentences: Texts


class SimilarityParameters(Wire):
    """Options of a comparison."""

    truncate: bool | None = True


class SimilarityRequest(Wire):
    """The request of huggingface_hub's `InferenceClient.sentence_similarity`."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


@similarity_router.post("/similarity", tags=["Re-ranking"])
async def similarity(request: SimilarityRequest, response: Response, service: Serving) -> list[float]:
    """Return the probability that each sentence answers the source sentence, in the order of the request."""
    started, inputs = time.perf_counter(), request.inputs
    truncate = request.parameters is None or request.parameters.truncate is not False
    fix = None if truncate else "set truncate to true to truncate it"
    ask = Ask(inputs.source_sentence, inputs.sentences)
    answer = await _answer(ask, fix, "inputs.sentences", response, service, started, "inputs.source_sentence")
    return [value or 0.0 for value in answer.probabilities]


async def _answer(
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
    if answer.cut:
        more = ["..."] if len(answer.cut) > MAX_LISTED else []
        headers["x-cut-texts"] = ",".join([*map(str, answer.cut[:MAX_LISTED]), *more])
    if answer.query_cut:
        headers["x-cut-query"] = "true"
    if answer.warnings:
        # JSON in ASCII, because a header takes neither line breaks nor every character of a request.
        headers["x-warnings"] = json.dumps(answer.warnings)
    if answer.partial:
        headers["x-partial"] = "true"
    return headers
