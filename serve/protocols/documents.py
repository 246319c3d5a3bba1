"""The rerank APIs of Cohere, Jina and vLLM: POST /v1/rerank and /v2/rerank; and Infinity's: POST /rerank with
`documents`."""

import asyncio
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rayrank.data.sources.passage_fields import readable_fields
from rayrank.serve.protocols.problems import Problem, SharedError
from rayrank.serve.protocols.route import Service, Serving, documented, guarded
from rayrank.serve.protocols.wire import (
    FirstStageFields,
    Query,
    Usage,
    Whole,
    Window,
    Wire,
    scores_of,
    usage_of,
    warnings_of,
)  # fmt: skip
from rayrank.serve.records import MAX_FIELDS, Answer, Ask

DOCUMENTS_PER_UNIT = 100
"""Documents of one billed search unit at Cohere."""


class Document(Wire):
    """A document with fields; its `id` is returned with its score."""

    model_config = ConfigDict(extra="allow")
    id: str | int | None = None
    text: str | None = None
    fields: Any = Field(
        default=None, description=f"numbers and dates by name, to fuse the model's scores with; at most {MAX_FIELDS}"
    )

    def named(self) -> dict[str, Any]:
        """Return the document's fields as they were sent."""
        return self.fields if isinstance(self.fields, dict) else {}

    def values(self) -> dict[str, float]:
        """Return the document's fields that training can read, as it reads them; dates are days since 1970."""
        return readable_fields(self.named())


Documents = Annotated[
    list[str | Document],
    Field(min_length=1, examples=[["Whales breathe air.", {"id": "b7", "text": "Bread needs yeast."}]]),
]


class DocumentsRequest(FirstStageFields):
    """A query and the documents to re-rank for it."""

    query: Query
    documents: Documents
    top_n: Whole | None = Field(default=None, ge=0, description="number of results; all if 0 or left out")
    rank_fields: list[str] | None = Field(
        default=None, max_length=100, description="fields of a document that the model reads; `text` if left out"
    )
    return_documents: bool | None = Field(default=None, description="whether results contain their `document`")
    max_tokens_per_doc: Whole | None = Field(
        default=None, ge=1, description="word pieces that are read of each document; the rest of it is left out"
    )

    async def ask_documents(self) -> Ask:
        """Return the request to the model."""
        ask = self.ask(self.query, self.texts(), "documents", self.max_tokens_per_doc)
        counts = [0 if isinstance(each, str) else len(each.named()) for each in self.documents]
        if max(counts) > MAX_FIELDS:
            field = f"documents.{counts.index(max(counts))}.fields"
            message = f"{field}: {max(counts)} are too many; send at most {MAX_FIELDS} per document."
            raise Problem("too_many", message, field)
        # On a thread: all fields of a large body take tenths of a second, in which other requests are answered.
        fields = await asyncio.to_thread(self._values) if any(counts) else [{} for _ in counts]
        return replace(ask, fields=fields, num_windows=self.top_n or len(counts))

    def _values(self) -> list[dict[str, float]]:
        return [{} if isinstance(each, str) else each.values() for each in self.documents]

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
    fused_score: float | None = None
    id: str | int | None = None
    document: dict[str, Any] | str | None = None
    window: Window | None = None


class Meta(BaseModel):
    """Cohere's metadata of an answer."""

    api_version: dict[str, str]
    billed_units: dict[str, int]
    tokens: dict[str, int]
    warnings: list[str] | None = None
    ranked_by: Literal["fused_score"] | None = None
    """Set if the order is that of `fused_score` and not of `relevance_score`."""


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


def results_of(request: DocumentsRequest, answer: Answer, texts: Sequence[str] | None = None) -> list[Result]:
    """Return the best `top_n` documents as results; `texts` are shown instead of the documents, as Infinity does."""
    results = []
    for place, score in scores_of(answer, request.as_logits)[: request.top_n or None]:
        document, shown = request.documents[place], None
        if request.return_documents:
            shown = _object(document) if texts is None else texts[place]
        name = None if isinstance(document, str) else document.id
        window = Window.of(answer, place)
        fused = answer.fused.get(place)
        results.append(
            Result(index=place, relevance_score=score, fused_score=fused, id=name, document=shown, window=window)
        )
    return results


def _object(document: str | Document) -> dict[str, Any]:
    return {"text": document} if isinstance(document, str) else document.model_dump(exclude_unset=True)


def meta_of(request: DocumentsRequest, answer: Answer, version: str) -> Meta:
    """Return Cohere's metadata of an answer."""
    units = -(-len(request.documents) // DOCUMENTS_PER_UNIT)
    return Meta(
        api_version={"version": version}, billed_units={"search_units": units},
        tokens={"input_tokens": answer.num_tokens}, warnings=warnings_of(answer, "documents"),
        ranked_by="fused_score" if answer.fused else None,
    )  # fmt: skip


async def rerank_documents(
    request: DocumentsRequest, service: Service, as_texts: bool, version: Literal["1", "2"] = "1"
) -> DocumentsAnswer:
    """Re-rank documents, and return the fields that all these servers send, with documents as objects or texts;
    `version` is the one of Cohere's API."""
    ask = await request.ask_documents()
    answer = await service.rerank(ask)
    return DocumentsAnswer(
        id=str(uuid.uuid4()), created=int(time.time()), model=answer.model,
        results=results_of(request, answer, ask.passages if as_texts else None), usage=usage_of(answer.num_tokens),
        meta=meta_of(request, answer, version), query_type=answer.query_type, partial=answer.partial,
    )  # fmt: skip


router = guarded(lambda body: SharedError, documented(SharedError))


@router.post("/v1/rerank", response_model_exclude_none=True, tags=["Re-ranking"])
async def rerank(request: DocumentsRequest, service: Serving) -> DocumentsAnswer:
    """Re-rank documents (Cohere v1, Jina, vLLM). Results contain their documents only if `return_documents` is true."""
    return await rerank_documents(request, service, as_texts=False)


@router.post("/v2/rerank", response_model_exclude_none=True, tags=["Re-ranking"])
async def rerank_v2(request: DocumentsRequest, service: Serving) -> DocumentsAnswer:
    """Re-rank documents (Cohere v2, vLLM). Results contain their documents only if `return_documents` is true."""
    return await rerank_documents(request, service, as_texts=False, version="2")
