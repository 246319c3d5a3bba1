"""Cohere's API, version 2: POST /v2/rerank."""

import uuid

from pydantic import BaseModel

from rayrank.serve.protocols.documents import DocumentsRequest, Meta, Result, meta_of, results_of
from rayrank.serve.protocols.problems import CohereError
from rayrank.serve.protocols.route import Serving, documented, guarded


class CohereAnswer(BaseModel):
    """The re-ranked documents, best first."""

    id: str
    results: list[Result]
    meta: Meta
    query_type: str | None = None
    partial: bool


router = guarded(lambda body: CohereError, documented(CohereError))


@router.post("/v2/rerank", response_model_exclude_none=True, tags=["Re-ranking"])
async def rerank(request: DocumentsRequest, service: Serving) -> CohereAnswer:
    """Re-rank documents (Cohere v2). Results contain their documents only if `return_documents` is true."""
    answer = await service.rerank(await request.ask_documents())
    return CohereAnswer(
        id=str(uuid.uuid4()), results=results_of(request, answer),
        meta=meta_of(request, answer, "2"), query_type=answer.query_type, partial=answer.partial,
    )  # fmt: skip
