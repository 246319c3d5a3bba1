"""Our own routes: POST /search, the whole product in one call, and POST /explain."""

import asyncio
import time
from typing import Any

from pydantic import BaseModel, Field

from serve.protocols.problems import DetailError, Problem
from serve.protocols.route import READS, Serving, documented, guarded
from serve.protocols.wire import OwnFields, Query, Wire, cut_warnings, scores_of
from serve.records import Ask


class SearchRequest(OwnFields):
    """A query to the index behind this server."""

    query: Query
    depth: int | None = Field(default=None, ge=1, description="passages to retrieve; search.depth if left out")
    top_n: int | None = Field(default=None, ge=0, description="how many to return; all if 0 or left out")
    first_stage_weight: float | None = Field(
        default=None, ge=0, le=1, description="how much retrieval counts, 0 to 1; what was learnt on dev if left out"
    )


class SearchResult(BaseModel):
    """A passage, its score, and what the first stage thought of it."""

    id: str
    text: str
    relevance_score: float
    first_stage_score: float
    first_stage_rank: int = Field(description="counted from 1")


class SearchAnswer(BaseModel):
    """Passages, best first."""

    model: str
    results: list[SearchResult]
    query_type: str | None = None
    warnings: list[str] | None = None
    partial: bool


class ExplainRequest(Wire):
    """A query and one passage."""

    query: Query
    document: str = Field(min_length=1)
    query_type: str | None = None


router = guarded(lambda body: DetailError, documented(DetailError))
search_router = guarded(lambda body: DetailError, documented(DetailError, (*READS, 404)))


@search_router.post("/search", response_model_exclude_none=True, tags=["Search"])
async def search(request: SearchRequest, service: Serving) -> SearchAnswer:
    """Retrieve passages and put them in order."""
    settings = service.config.search
    if not settings.index:
        raise Problem("missing", "This server has no index to search: start it with search.index.")
    depth = request.depth or settings.depth
    most = min(settings.depth, service.config.limits.documents)
    if request.depth and depth > most:
        raise Problem("too_many", f"depth={depth} is too many; ask for at most {most}.", "depth")
    began = time.time()
    try:
        async with asyncio.timeout(None if request.deadline_ms is None else request.deadline_ms / 1000) as limit:
            hits = await service.backend.search(request.query, min(depth, most))
    except TimeoutError:
        if not limit.expired():
            raise
        hits = []
    if not hits:
        return SearchAnswer(
            model=service.config.name, results=[], query_type=request.query_type, partial=limit.expired()
        )  # fmt: skip
    ask = Ask(
        request.query, [hit.text for hit in hits], request.query_type, [hit.score for hit in hits],
        request.first_stage_weight, request.deadline_ms, began,
    )  # fmt: skip
    answer = await service.rerank(ask)
    results = [
        SearchResult(
            id=hits[place].passage_id, text=hits[place].text, relevance_score=score,
            first_stage_score=hits[place].score, first_stage_rank=place + 1,
        )
        for place, score in scores_of(answer, request.raw_scores)[: request.top_n or None]
    ]  # fmt: skip
    return SearchAnswer(
        model=answer.model, results=results, query_type=answer.query_type,
        warnings=cut_warnings(answer.cut, "hits"), partial=answer.partial,
    )  # fmt: skip


@router.post("/explain", tags=["Search"])
async def explain(request: ExplainRequest, service: Serving) -> dict[str, Any]:
    """Return why a passage got its score: pieces, words, exact matches, attention, and words left out."""
    return await service.backend.explain(request.query, request.document, request.query_type)
