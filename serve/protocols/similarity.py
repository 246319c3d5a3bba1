"""The sentence similarity of huggingface_hub's client: POST /similarity, and POST /, which ranks as /rerank, too."""

import time
from typing import Annotated, Any

from fastapi import Response
from pydantic import Discriminator, Tag

from rayrank.serve.protocols.documents import DocumentsAnswer, DocumentsRequest
from rayrank.serve.protocols.problems import ErrorBody, InfinityError, TeiError
from rayrank.serve.protocols.route import BODY_STATUSES, Service, Serving, documented, guarded
from rayrank.serve.protocols.tei import TeiRank, TeiRequest, errors_of, form_of, rerank_either, unabridged
from rayrank.serve.protocols.wire import ModelField, Query, Texts, Wire
from rayrank.serve.records import Ask


class Sentences(Wire):
    """A sentence and the sentences to compare it with."""

    source_sentence: Query
    sentences: Texts


class SimilarityParameters(Wire):
    """Options of a comparison."""

    truncate: bool | None = True


class SimilarityRequest(ModelField):
    """The request of huggingface_hub's `InferenceClient.sentence_similarity`."""

    inputs: Sentences
    parameters: SimilarityParameters | None = None


def _form(body: Any) -> str:
    compares = "inputs" in body if isinstance(body, dict) else isinstance(body, SimilarityRequest)
    return "similarity-form" if compares else form_of(body)


def _errors(body: Any) -> type[ErrorBody]:
    return TeiError if body is not None and _form(body) == "similarity-form" else errors_of(body)


RootRequest = Annotated[
    Annotated[SimilarityRequest, Tag("similarity-form")]
    | Annotated[TeiRequest, Tag("tei-form")]
    | Annotated[DocumentsRequest, Tag("documents-form")],
    Discriminator(_form),
]

router = guarded(lambda body: TeiError, documented(TeiError, (*BODY_STATUSES, 424)))
root_router = guarded(_errors, documented(TeiError | InfinityError, (*BODY_STATUSES, 424)))


@router.post("/similarity", tags=["Re-ranking"])
async def similarity(request: SimilarityRequest, response: Response, service: Serving) -> list[float]:
    """Return the probability that each sentence answers the source sentence, in the order of the request."""
    return await _compare(request, response, service)


@root_router.post("/", response_model_exclude_none=True, tags=["Re-ranking"])
async def root(
    request: RootRequest, response: Response, service: Serving
) -> list[float] | list[TeiRank] | DocumentsAnswer:
    """Compare sentences as /similarity does, or re-rank as /rerank does."""
    if isinstance(request, SimilarityRequest):
        return await _compare(request, response, service)
    return await rerank_either(request, response, service)


async def _compare(request: SimilarityRequest, response: Response, service: Service) -> list[float]:
    started, inputs = time.perf_counter(), request.inputs
    truncate = request.parameters is None or request.parameters.truncate is not False
    fix = None if truncate else "set truncate to true to truncate it"
    ask = Ask(inputs.source_sentence, inputs.sentences, model=request.model)
    answer = await unabridged(ask, fix, "inputs.sentences", response, service, started, "inputs.source_sentence")
    return [value or 0.0 for value in answer.probabilities]
