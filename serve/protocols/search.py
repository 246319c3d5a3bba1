"""Our own routes: POST /search, which retrieves and re-ranks, and POST /explain."""

import asyncio
import time
from typing import Annotated, Any

from pydantic import BaseModel, Field

from rayrank.serve.protocols.problems import DetailError, Problem
from rayrank.serve.protocols.route import Serving, documented, guarded
from rayrank.serve.protocols.wire import ModelField, Query, RankingFields, Whole, Window, scores_of, warnings_of
from rayrank.serve.records import Ask

MAX_QUERY = 10_000
"""Characters of a query to search with: a search occupies a thread until it ends, even if its client has left."""


class SearchRequest(RankingFields):
    """A query to the index of this server."""

    query: Annotated[Query, Field(max_length=MAX_QUERY)]
    depth: Whole | None = Field(
        default=None, ge=1, description="number of passages to retrieve; search.depth if left out"
    )
    top_n: Whole | None = Field(default=None, ge=0, description="number of results; all if 0 or left out")
    first_stage_weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of first-stage scores in the order, 0 to 1; if left out, the weight tuned on the dev set",
    )


class SearchResult(BaseModel):
    """A passage, its score, and its score and rank in the first stage."""

    id: str
    text: str
    relevance_score: float
    fused_score: float | None = Field(default=None, description="decides the order if the model has a fusion")
    first_stage_score: float
    first_stage_rank: int = Field(description="counted from 1")
    window: Window | None = None


class SearchAnswer(BaseModel):
    """The re-ranked passages, best first."""

    model: str
    results: list[SearchResult]
    query_type: str | None = None
    warnings: list[str] | None = None
    partial: bool


class ExplainRequest(ModelField):
    """A query and the passage whose score to explain."""

    query: Query
    document: str = Field(min_length=1)
    query_type: str | None = None


router = guarded(lambda body: DetailError, documented(DetailError))


@router.post("/search", response_model_exclude_none=True, tags=["Search"])
async def search(request: SearchRequest, service: Serving) -> SearchAnswer:
    """Retrieve passages with the first stage and re-rank them."""
    settings = service.config.search
    if not settings.run:
        raise Problem("missing", "This server has no first stage to search with: start it with search.run.")
    depth = request.depth or settings.depth
    most = min(settings.depth, service.config.limits.documents)
    if request.depth and depth > most:
        raise Problem("too_many", f"depth={depth} is too large; send at most {most}.", "depth")
    began, backend = time.time(), service.backend(request.model)
    try:
        async with asyncio.timeout(None if request.deadline_ms is None else request.deadline_ms / 1000) as limit:
            hits = await backend.search(request.query, min(depth, most))
    except TimeoutError:
        if not limit.expired():
            raise
        hits = []
    if not hits:
        return SearchAnswer(
            model=backend.name, results=[], query_type=request.query_type, partial=limit.expired()
        )  # fmt: skip
    ask = Ask(
        request.query, [hit.text for hit in hits], request.query_type, [hit.score for hit in hits],
        request.first_stage_weight, request.deadline_ms, began,
        min_relevance=request.min_relevance, min_precision=request.min_precision, model=request.model,
        # An empty entry for each passage: the answer then warns of the fields that the model's fusion reads.
        fields=[{} for _ in hits], num_windows=request.top_n or len(hits),
    )  # fmt: skip
    answer = await service.rerank(ask)
    results = [
        SearchResult(
            id=hits[place].passage_id, text=hits[place].text, relevance_score=score,
            first_stage_score=hits[place].score, first_stage_rank=place + 1,
            fused_score=answer.fused.get(place), window=Window.of(answer, place),
        )
        for place, score in scores_of(answer, request.as_logits)[: request.top_n or None]
    ]  # fmt: skip
    return SearchAnswer(
        model=answer.model, results=results, query_type=answer.query_type,
        warnings=warnings_of(answer, "hits"), partial=answer.partial,
    )  # fmt: skip


@router.post("/explain", tags=["Search"])
async def explain(request: ExplainRequest, service: Serving) -> dict[str, Any]:
    """Explain a passage's score: its pieces, words, exact matches and attention, and the score without each word."""
    if not service.config.http.explain:
        raise Problem("missing", "This server does not explain scores: start it with http.explain=true.")
    return await service.backend(request.model).explain(request.query, request.document, request.query_type)
