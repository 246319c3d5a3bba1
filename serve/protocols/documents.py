"""The rerank API of Cohere v1, Jina, vLLM and Infinity: POST /v1/rerank, and POST /rerank with `documents`."""

import time
import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rayrank.serve.protocols.problems import Problem, SharedError
from rayrank.serve.protocols.route import Service, Serving, documented, guarded
from rayrank.serve.protocols.wire import FirstStageFields, Query, Usage, Window, Wire, scores_of, usage_of, warnings_of
from rayrank.serve.records import Answer

DOCUMENTS_PER_UNIT = 100
"""Documents of one billed search unit at Cohere."""


class Document(Wire):
    """A document with fields; its `id` is returned with its score."""

    model_config = ConfigDict(extra="allow")
    id: str | int | None = None
    text: str | None = None


Documents = Annotated[
    list[str | Document],
    Field(min_length=1, examples=[["Whales breathe air.", {"id": "b7", "text": "Bread needs yeast."}]]),
]


class DocumentsRequest(FirstStageFields):
    """A query and the documents to re-rank for it."""

    query: Query
    documents: Documents
    model: str | None = Field(default=None, description="ignored: this server has one model")
    top_n: int | None = Field(default=None, ge=0, description="number of results; all if 0 or left out")
    rank_fields: list[str] | None = Field(
        default=None, max_length=100, description="fields of a document that the model reads; `text` if left out"
    )
    return_documents: bool | None = Field(
        default=None, description="whether results contain their `document`; if left out, true except for /v2/rerank"
    )

    def texts(self) -> list[str]:
        """Return the text that the model reads of each document."""
        # Each field counts once: repeated fields could make a text much longer than the request body.
        fields = list(dict.fromkeys(self.rank_fields or ["text"]))
        return [
            each if isinstance(each, str) else _text(each, fields, place) for place, each in enumerate(self.documents)
        ]


def _text(document: Document, fields: list[str], place: int) -> str:
    values = document.model_dump()
    found = [str(values[field]) for field in fields if isinstance(values.get(field), str | int | float)]
    if not found:
        where = f"documents.{place}"
        raise Problem(
            "invalid", f"{where}: it has no {', '.join(fields)}; name the fields to read in rank_fields.", where
        )
    return "\n".join(found)


class Result(BaseModel):
    """The position of a document in the request, and its score."""

    index: int
    relevance_score: float
    id: str | int | None = None
    document: dict[str, Any] | None = None
    window: Window | None = None


class Meta(BaseModel):
    """Cohere's metadata of an answer."""

    api_version: dict[str, str]
    billed_units: dict[str, int]
    tokens: dict[str, int]
    warnings: list[str] | None = None


class DocumentsAnswer(BaseModel):
    """The re-ranked documents, best first."""

    id: str
    object: Literal["rerank"] = "rerank"
    created: int
    model: str
    results: list[Result]
    usage: Usage
    meta: Meta
    query_type: str | None = None
    partial: bool = Field(description="whether the deadline passed before all documents were scored")


def results_of(request: DocumentsRequest, answer: Answer, with_documents: bool) -> list[Result]:
    """Return the best `top_n` documents as results."""
    scores = scores_of(answer, request.raw_scores)
    return [
        _result(request.documents[place], place, score, with_documents, Window.of(answer, place))
        for place, score in scores[: request.top_n or None]
    ]


def _result(
    document: str | Document, place: int, score: float, with_document: bool, window: Window | None
) -> Result:  # fmt: skip
    if isinstance(document, str):
        shown = {"text": document} if with_document else None
        return Result(index=place, relevance_score=score, document=shown, window=window)
    shown = document.model_dump(exclude_unset=True) if with_document else None
    return Result(index=place, relevance_score=score, id=document.id, document=shown, window=window)


def meta_of(request: DocumentsRequest, answer: Answer, version: str) -> Meta:
    """Return Cohere's metadata of an answer."""
    units = -(-len(request.documents) // DOCUMENTS_PER_UNIT)
    return Meta(
        api_version={"version": version}, billed_units={"search_units": units},
        tokens={"input_tokens": answer.num_tokens}, warnings=warnings_of(answer, "documents"),
    )  # fmt: skip


async def rerank_documents(request: DocumentsRequest, service: Service) -> DocumentsAnswer:
    """Re-rank documents, and return the union of the fields that these servers send."""
    answer = await service.rerank(request.ask(request.query, request.texts(), "documents"))
    return DocumentsAnswer(
        id=str(uuid.uuid4()), created=int(time.time()), model=answer.model,
        results=results_of(request, answer, request.return_documents is not False), usage=usage_of(answer.num_tokens),
        meta=meta_of(request, answer, "1"), query_type=answer.query_type, partial=answer.partial,
    )  # fmt: skip


router = guarded(lambda body: SharedError, documented(SharedError))


@router.post("/v1/rerank", response_model_exclude_none=True, tags=["Re-ranking"])
async def rerank(request: DocumentsRequest, service: Serving) -> DocumentsAnswer:
    """Re-rank documents (Cohere v1, Jina, vLLM, Infinity). Results contain their documents by default."""
    return await rerank_documents(request, service)
