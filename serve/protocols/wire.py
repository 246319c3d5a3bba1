"""What requests and answers of all dialects have in common: our own fields, and sentences about what was cut."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from serve.protocols.problems import Problem
from serve.records import Answer, Ask

NAMED = 20
"""Places that a warning lists; of more it tells the number."""

Query = Annotated[str, Field(min_length=1, examples=["how do whales breathe"])]
Texts = Annotated[list[str], Field(min_length=1, examples=[["Whales breathe air.", "Bread needs yeast."]])]


class Wire(BaseModel):
    """A request: fields it does not know are ignored, because every server's clients send some of their own."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class OwnFields(Wire):
    """What only this server understands; all of it may be left out."""

    query_type: str | None = Field(default=None, description="the query's type; predicted if left out")
    deadline_ms: float | None = Field(
        default=None, gt=0, description="answer by then with what is scored, and `partial` if that is not all"
    )
    raw_scores: bool | None = Field(default=False, description="logits instead of probabilities")


class FirstStage(OwnFields):
    """What the first stage thought of the passages."""

    first_stage_scores: list[float] | None = Field(
        default=None, description="one a document; those with the best are scored first if there is a deadline"
    )
    first_stage_weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="how much they count, from 0 (not) to 1 (alone); what was learnt on dev if left out",
    )

    def ask(self, query: str, passages: Sequence[str], field: str) -> Ask:
        """Return what the model is asked; `field` is what the dialect calls the passages."""
        scores, weight = self.first_stage_scores, self.first_stage_weight
        if scores is not None and len(scores) != len(passages):
            message = f"first_stage_scores has {len(scores)} values for {len(passages)} {field}: send one each."
            raise Problem("invalid", message, "first_stage_scores")
        if weight and scores is None:
            message = f"first_stage_weight={weight:g} needs first_stage_scores: send them, or leave it out."
            raise Problem("invalid", message, "first_stage_weight")
        return Ask(query, passages, self.query_type, scores, weight, self.deadline_ms)


def scores_of(answer: Answer, raw: bool | None) -> list[tuple[int, float]]:
    """Return places and scores, best first, without what the deadline left out."""
    values = answer.logits if raw else answer.probabilities
    return [(place, value) for place in answer.order if (value := values[place]) is not None]


def cut_warnings(cut: Sequence[int], field: str) -> list[str] | None:
    """Return a sentence about passages that were read in part, if there are any."""
    if not cut:
        return None
    more = len(cut) - NAMED
    rest = f" and {more} more" if more > 0 else ""
    return [f"{field} {', '.join(map(str, cut[:NAMED]))}{rest}: longer than the model reads; the ends were left out."]


class Usage(BaseModel):
    """Word pieces that were scored, as OpenAI's clients know them."""

    prompt_tokens: int
    total_tokens: int


def usage_of(num_tokens: int) -> Usage:
    """Return the cost of an answer, none of which is written by the model."""
    return Usage(prompt_tokens=num_tokens, total_tokens=num_tokens)
