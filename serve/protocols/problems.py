"""What a client can do wrong or has to wait for, and how each dialect says it."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from rayrank.core.errors import RayrankError
from serve.records import Overloaded, Unready

Kind = Literal[
    "invalid_json", "unauthorised", "missing", "method", "slow", "too_large", "media_type",
    "invalid", "empty", "too_many", "overloaded", "failed", "unready",
]  # fmt: skip

STATUS: dict[Kind, int] = {
    "invalid_json": 400,
    "unauthorised": 401,
    "missing": 404,
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

SHOWN = 300
"""Characters of a message: a client's own text may be in it, and is not sent back whole."""


class Problem(Exception):
    """Why a request gets no answer, as one sentence, and the field to change if there is one."""

    def __init__(
        self, kind: Kind, message: str, field: str | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message if len(message) <= SHOWN else f"{message[:SHOWN]} ..."
        self.field = field and field[:SHOWN]
        self.headers = dict(headers or {})


class ErrorBody(BaseModel):
    """What a dialect sends in the place of an answer."""

    statuses: ClassVar[Mapping[Kind, int]] = STATUS

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Return the problem in this dialect's shape."""
        raise NotImplementedError


class TeiError(ErrorBody):
    """The shape of text-embeddings-inference."""

    statuses = {**STATUS, "empty": 400, "too_many": 413, "failed": 424}
    kinds: ClassVar[Mapping[Kind, str]] = {
        "empty": "Empty", "overloaded": "Overloaded", "failed": "Backend", "unready": "Unhealthy",
    }  # fmt: skip

    error: str
    error_type: str

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(error=problem.message, error_type=cls.kinds.get(problem.kind, "Validation"))


class CohereError(ErrorBody):
    """The shape of Cohere."""

    message: str
    id: str

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(message=problem.message, id=str(uuid.uuid4()))


class ErrorDetail(BaseModel):
    """What vLLM, Infinity and OpenAI put under `error`."""

    message: str
    type: str
    param: str | None
    code: int


def _detail(problem: Problem) -> ErrorDetail:
    status = STATUS[problem.kind]
    return ErrorDetail(message=problem.message, type=problem.kind, param=problem.field, code=status)


class DetailError(ErrorBody):
    """The shape of vLLM and Infinity, and of the routes that are only ours."""

    error: ErrorDetail

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(error=_detail(problem))


class SharedError(ErrorBody):
    """The shape of /v1/rerank, where Cohere's clients meet those of vLLM, Infinity and Jina: each finds its own."""

    message: str
    id: str
    error: ErrorDetail

    @classmethod
    def of(cls, problem: Problem) -> Self:
        return cls(message=problem.message, id=str(uuid.uuid4()), error=_detail(problem))


def problem_of(error: Exception) -> Problem:
    """Return what a client is told of an exception; what nobody foresaw is only called a failure."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _invalid(error.errors())
        case Overloaded():
            seconds = max(1, round(error.retry_after + 0.5))
            message = f"The queue is full: ask again in {seconds} s."
            return Problem("overloaded", message, headers={"Retry-After": str(seconds)})
        case Unready():
            return Problem("unready", "No model is ready to answer: ask again in some seconds.")
        case RayrankError():
            # One that comes from a replica is wrapped by Ray, with its traceback.
            return Problem("invalid", str(getattr(error, "cause", error)))
    return Problem("failed", "The server failed; its log says why.")


_BRANCHES = {"body", "str"}
"""Of pydantic's locations, what is neither a place nor a name of a field; other such parts are no plain names."""


def _invalid(problems: Sequence[dict[str, Any]]) -> Problem:
    # Where several forms are allowed, the one that went furthest is the one that was meant.
    problem = max(problems, key=lambda each: (len(each["loc"]), not each["type"].endswith("_type")))
    parts = [str(part) for part in problem["loc"] if part not in _BRANCHES]
    field = ".".join(part for part in parts if part.isdecimal() or (part.isidentifier() and part.islower()))
    reason = problem["msg"].removeprefix("Value error, ")
    short = problem["type"] in ("too_short", "string_too_short")
    kind: Kind = "empty" if short else "invalid"
    return Problem(kind, f"{field or 'the body'}: {reason[0].lower()}{reason[1:]}.", field or None)
