"""Reasons why a request fails, and the error format of each API."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from rayrank.core.errors import RayrankError
from rayrank.serve.protocols.words import sentence
from rayrank.serve.records import Overloaded, TimedOut, Unready

Kind = Literal[
    "invalid_json", "unauthorised", "missing", "no_model", "method", "slow", "too_large", "media_type",
    "invalid", "empty", "too_many", "overloaded", "failed", "unready",
]  # fmt: skip

STATUS: dict[Kind, int] = {
    "invalid_json": 400,
    "unauthorised": 401,
    "missing": 404,
    "no_model": 404,
    "method": 405,
    "slow": 408,
    "too_large": 413,
    "media_type": 415,
    "invalid": 422,
    "empty": 422,
    "too_many": 422,
    "overloaded": 429,
    "failed": 500,
    "unready": 503,
}

SOON = {"Retry-After": "5"}
"""The header of an answer without a model: a replica is replaced in some seconds."""

MAX_MESSAGE = 300
"""Characters of a message: it may quote the request, which is not to be sent back as a whole."""


class Problem(Exception):
    """The reason why a request fails, in one sentence, and the field that caused it, if any."""

    def __init__(
        self, kind: Kind, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]} ..."
        self.field = field and field[:MAX_MESSAGE]
        self.headers = dict(headers or {})


class ErrorBody(BaseModel):
    """The body of an error response in the format of one API."""

    statuses: ClassVar[Mapping[Kind, int]] = STATUS

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the problem in this format."""
        raise NotImplementedError


class TeiError(ErrorBody):
    """Errors of text-embeddings-inference."""

    statuses = {**STATUS, "empty": 400, "too_many": 413, "failed": 424}
    kinds: ClassVar[Mapping[Kind, str]] = {
        "empty": "Empty", "overloaded": "Overloaded", "failed": "Backend", "unready": "Unhealthy",
    }  # fmt: skip

    error: str
    error_type: str

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(error=problem.message, error_type=cls.kinds.get(problem.kind, "Validation"))


class ErrorDetail(BaseModel):
    """The `error` object of vLLM, Infinity and OpenAI."""

    message: str
    type: str
    param: str | None
    code: int


def _detail(problem: Problem, statuses: Mapping[Kind, int]) -> ErrorDetail:
    code = statuses[problem.kind]
    return ErrorDetail(message=problem.message, type=problem.kind, param=problem.field, code=code)


class DetailError(ErrorBody):
    """Errors of vLLM and Infinity, and of our own routes."""

    error: ErrorDetail

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(error=_detail(problem, cls.statuses))


class SharedError(ErrorBody):
    """Errors where clients of Cohere, vLLM, Infinity and Jina send documents: the fields of all of them."""

    message: str
    id: str
    error: ErrorDetail
    detail: str
    """Read by clients of Jina."""

    @classmethod
    def of(cls, problem: Problem) -> Self:
        message = problem.message
        return cls(message=message, id=str(uuid.uuid4()), error=_detail(problem, cls.statuses), detail=message)


class InfinityError(SharedError):
    """Errors of documents that are sent to Infinity's path: Infinity answers 400 if it has no such model."""

    statuses = {**STATUS, "no_model": 400}


def problem_of(error: Exception) -> Problem:
    """Return the problem that a client gets for an exception; unexpected exceptions are not described to it."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error.errors())
        case Overloaded():
            seconds = max(1, round(error.retry_after + 0.5))
            message = f"The server is busy: send the request again in {seconds} s."
            return Problem("overloaded", message, headers={"Retry-After": str(seconds)})
        case Unready():
            return Problem("unready", "No model is ready: try again in some seconds.", headers=SOON)
        case TimedOut():
            message = f"The model has not answered within {error.seconds:g} s: try again, or send fewer documents."
            return Problem("unready", message, headers=SOON)
        case RayrankError():
            # Ray wraps an exception of a replica; `cause` is the original one, without the traceback.
            return Problem("invalid", str(getattr(error, "cause", error)))
    return Problem("failed", "The server failed; its log says why.")


_NOT_FIELDS = {"body", "str"}
"""Parts of pydantic's error locations that are not fields. Its other labels, such as class names, are not lower-case
identifiers."""


def _invalid(problems: Sequence[dict[str, Any]]) -> Problem:
    # If several types are allowed, the error deepest inside the body belongs to the type that the client meant.
    problem = max(problems, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    parts = [str(part) for part in problem["loc"] if part not in _NOT_FIELDS]
    field = ".".join(part for part in parts if part.isdecimal() or (part.isidentifier() and part.islower()))
    short = problem["type"] in ("too_short", "string_too_short")
    kind: Kind = "empty" if short else "invalid"
    return Problem(kind, sentence(field, problem), field or None)
