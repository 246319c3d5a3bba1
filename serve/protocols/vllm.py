"""vLLM's API to score pairs: POST /score and POST /v1/score."""

import time
import uuid
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rayrank.serve.protocols.pairs import score_pairs
from rayrank.serve.protocols.problems import DetailError, Problem
from rayrank.serve.protocols.route import Serving, documented, guarded
from rayrank.serve.protocols.wire import OwnFields, Usage, cut_warnings, usage_of

Side = Annotated[str, Field(min_length=1)] | Annotated[list[str], Field(min_length=1)]
FIELD_PAIRS = (("queries", "documents"), ("text_1", "text_2"), ("data_1", "data_2"))
QUERY_FIELDS = {documents: queries for queries, documents in FIELD_PAIRS}


def _describe_pairs(schema: dict[str, Any]) -> None:
    """Say in the OpenAPI document that one of the pairs of fields is needed."""
    given = {"not": {"type": "null"}}
    schema["anyOf"] = [{"required": [*pair], "properties": dict.fromkeys(pair, given)} for pair in FIELD_PAIRS]
    schema["examples"] = [
        {"queries": "how do whales breathe", "documents": ["Whales breathe air.", "Bread needs yeast."]}
    ]


class ScoreRequest(OwnFields):
    """One query and many documents, or as many queries as documents, under any of three pairs of names."""

    model_config = ConfigDict(json_schema_extra=_describe_pairs)
    queries: Side | None = None
    documents: Side | None = None
    text_1: Side | None = None
    text_2: Side | None = None
    data_1: Side | None = None
    data_2: Side | None = None

    def pairs(self) -> tuple[list[str], list[str], str]:
        """Return the query of each pair, the document of each pair, and the field name of the documents."""
        for first, second in FIELD_PAIRS:
            queries, documents = getattr(self, first), getattr(self, second)
            if queries is not None and documents is not None:
                left, right = [[side] if isinstance(side, str) else side for side in (queries, documents)]
                if len(left) not in (1, len(right)):
                    message = f"{first} has {len(left)} texts for {len(right)} {second}: send one, or one for each."
                    raise Problem("invalid", message, first)
                return left * (len(right) // len(left)), right, second
        raise Problem(
            "invalid", "queries: send it with documents, or text_1 with text_2, or data_1 with data_2.", "queries"
        )


class Score(BaseModel):
    """The score of one pair."""

    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreAnswer(BaseModel):
    """The scores of all pairs, in the order of the request."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[Score]
    usage: Usage
    warnings: list[str] | None = None
    partial: bool = Field(
        description="whether the deadline passed before all pairs were scored; the others are left out"
    )


router = guarded(lambda body: DetailError, documented(DetailError))


@router.post("/score", response_model_exclude_none=True, tags=["Re-ranking"])
@router.post("/v1/score", response_model_exclude_none=True, tags=["Re-ranking"])
async def score(request: ScoreRequest, service: Serving) -> ScoreAnswer:
    """Score pairs of texts (vLLM)."""
    queries, documents, field = request.pairs()
    scored = await score_pairs(service, queries, documents, request.query_type, request.deadline_ms, request.model)
    values = scored.logits if request.as_logits else scored.probabilities
    return ScoreAnswer(
        id=f"score-{uuid.uuid4().hex}", created=int(time.time()), model=scored.model,
        data=[Score(index=row, score=value) for row, value in enumerate(values) if value is not None],
        usage=usage_of(scored.num_tokens), partial=scored.partial,
        warnings=[
            *cut_warnings(scored.queries_cut, QUERY_FIELDS[field]), *cut_warnings(scored.cut, field), *scored.warnings
        ] or None,
    )  # fmt: skip
