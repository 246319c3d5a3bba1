"""Fields that the requests of several APIs share, and the parts that their answers share."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from rayrank.serve.protocols.problems import Problem
from rayrank.serve.records import Answer, Ask

MAX_LISTED = 20
"""Positions that a warning lists; further ones are only counted."""

Query = Annotated[str, Field(min_length=1, examples=["how do whales breathe"])]
Texts = Annotated[list[str], Field(min_length=1, examples=[["Whales breathe air.", "Bread needs yeast."]])]


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(_whole)]
"""A whole number. Clients in languages with one type of number send 1 as 1.0."""


class Wire(BaseModel):
    """A request body. Unknown fields are ignored, because clients of each server send fields of their own."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class ModelField(Wire):
    """A request to one of the server's models."""

    model: str | None = Field(
        default=None,
        description="the model's name; the first model if left out; ignored by a server of one model",
    )


class OwnFields(ModelField):
    """Optional fields that only this server supports."""

    query_type: str | None = Field(default=None, description="type of the query; predicted if left out")
    deadline_ms: float | None = Field(
        default=None,
        gt=0,
        description="milliseconds after which passages without a score are left out; the answer is then `partial`",
    )
    raw_scores: bool | None = Field(default=False, description="return logits instead of probabilities")
    use_activation: bool | None = Field(default=None, description="vLLM's name: false returns logits, as raw_scores")

    @property
    def as_logits(self) -> bool:
        """Whether the scores of the answer are logits."""
        return bool(self.raw_scores) or self.use_activation is False


class RankingFields(OwnFields):
    """Optional fields of requests whose answer is a list, best first."""

    min_relevance: float | None = Field(
        default=None, ge=0, le=1, description="leave out what is less likely to be relevant than this probability"
    )
    min_precision: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="leave out what is below the score from which on, on the model's dev set, this share was relevant; "
        "/info has the table",
    )


class FirstStageFields(RankingFields):
    """Optional scores of the first stage, and their weight."""

    first_stage_scores: list[float] | None = Field(
        default=None, description="one score per document; with a deadline, the best documents are scored first"
    )
    first_stage_weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of first_stage_scores in the order, 0 to 1; if left out, the weight tuned on the dev set",
    )

    def ask(self, query: str, passages: Sequence[str], field: str, max_tokens: int | None = None) -> Ask:
        """Return the request to the model; `field` is the name of the passages in this API."""
        scores, weight = self.first_stage_scores, self.first_stage_weight
        if scores is not None and len(scores) != len(passages):
            message = f"first_stage_scores has {len(scores)} values for {len(passages)} {field}: send one for each."
            raise Problem("invalid", message, "first_stage_scores")
        if weight and scores is None:
            message = f"first_stage_weight={weight:g} needs first_stage_scores: send them, or leave the weight out."
            raise Problem("invalid", message, "first_stage_weight")
        return Ask(
            query, passages, self.query_type, scores, weight, self.deadline_ms, max_tokens=max_tokens,
            min_relevance=self.min_relevance, min_precision=self.min_precision, model=self.model,
        )  # fmt: skip


class Window(BaseModel):
    """The part of a long document that got the document's score, in characters of the text that the model read."""

    start: int
    end: int

    @classmethod
    def of(cls, answer: Answer, place: int) -> "Window | None":
        """Return the best window of the document at a position; None for a document that was read in one piece."""
        found = answer.windows.get(place)
        return cls(start=found[0], end=found[1]) if found else None


def scores_of(answer: Answer, raw: bool) -> list[tuple[int, float]]:
    """Return positions and scores, best first, without passages that were not scored before the deadline."""
    values = answer.logits if raw else answer.probabilities
    return [(place, value) for place in answer.order if (value := values[place]) is not None]


def warnings_of(answer: Answer, field: str, query_field: str = "query") -> list[str] | None:
    """Return what an answer's reader has to know: texts that were not read to their ends, and the model's warnings."""
    query = [f"{query_field}: longer than what the model reads; its end was not read."] if answer.query_cut else []
    return [*query, *cut_warnings(answer.cut, field), *answer.warnings] or None


def cut_warnings(cut: Sequence[int], field: str) -> list[str]:
    """Return a warning that names the truncated texts of a list, if there are any."""
    if not cut:
        return []
    more = len(cut) - MAX_LISTED
    places = ", ".join(map(str, cut[:MAX_LISTED])) + (f" and {more} more" if more > 0 else "")
    return [f"{field} {places}: longer than what the model reads; the ends were not read."]


class Usage(BaseModel):
    """Word pieces that were scored, under the names that OpenAI's clients read."""

    prompt_tokens: int
    total_tokens: int


def usage_of(num_tokens: int) -> Usage:
    """Return the usage of an answer; a re-ranker generates no tokens, so all are prompt tokens."""
    return Usage(prompt_tokens=num_tokens, total_tokens=num_tokens)
