"""What text-embeddings-inference offers under `inputs`: POST /predict, which scores pairs, and POST /tokenize."""

from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, BeforeValidator, Field

from rayrank.serve.protocols.pairs import score_pairs
from rayrank.serve.protocols.problems import Problem, TeiError
from rayrank.serve.protocols.route import BODY_STATUSES, Serving, documented, guarded
from rayrank.serve.protocols.tei import warning_headers
from rayrank.serve.protocols.wire import ModelField, Texts
from rayrank.serve.records import Piece

LABEL = "LABEL_0"
"""The name of a re-ranker's only class at text-embeddings-inference."""

MAX_CHARACTERS = 50_000
"""Characters of a request to /tokenize: its answer is many times as long as its texts."""

Pair = Annotated[list[str], Field(min_length=2, max_length=2)]
Pairs = Annotated[list[Pair], Field(min_length=1)]


def _check_pairs(value: Any) -> Any:
    pairs = value if isinstance(value, list) and any(isinstance(each, list) for each in value) else [value]
    if not all(isinstance(each, list) and len(each) == 2 for each in pairs):
        raise ValueError("send a list of a query and a passage, or a list of such pairs")
    return value


class PredictRequest(ModelField):
    """A query and a passage, or a list of such pairs."""

    inputs: Annotated[Pair | Pairs, BeforeValidator(_check_pairs)] = Field(
        examples=[["how do whales breathe", "Whales breathe air."]]
    )
    raw_scores: bool | None = Field(default=False, description="return logits instead of probabilities")
    truncate: bool | None = Field(
        default=True, description="whether passages that are too long are truncated (true) or refused (false)"
    )


class Prediction(BaseModel):
    """The score of a pair."""

    score: float
    label: str = LABEL


class TokenizeRequest(ModelField):
    """Texts to tokenise."""

    inputs: str | Texts
    add_special_tokens: bool = True


class Token(BaseModel):
    """A word piece, and the characters of the text that it covers."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


router = guarded(lambda body: TeiError, documented(TeiError, (*BODY_STATUSES, 424)))


@router.post("/predict", tags=["Re-ranking"])
async def predict(
    request: PredictRequest, response: Response, service: Serving
) -> list[Prediction] | list[list[Prediction]]:
    """Score pairs of texts, in the order of the request (text-embeddings-inference)."""
    inputs: list[Any] = request.inputs
    alone = isinstance(inputs[0], str)
    pairs: list[list[str]] = [inputs] if alone else inputs
    queries, passages = [query for query, _ in pairs], [passage for _, passage in pairs]
    scored = await score_pairs(service, queries, passages, model=request.model)
    cut = [(row, 0) for row in scored.queries_cut] + [(row, 1) for row in scored.cut]
    if request.truncate is False and cut:
        row, side = cut[0]
        place = f"inputs.{side}" if alone else f"inputs.{row}.{side}"
        fix = "set truncate to true to truncate it"
        raise Problem("too_many", f"{place}: longer than the model's maximum input; {fix}.", place)
    response.headers.update(warning_headers(scored.cut, bool(scored.queries_cut), scored.warnings))
    values = scored.logits if request.raw_scores else scored.probabilities
    # Without a deadline every pair has a score.
    found = [[Prediction(score=value)] for value in values if value is not None]
    return found[0] if alone else found


@router.post("/tokenize", tags=["Server"])
async def tokenize(request: TokenizeRequest, service: Serving) -> list[list[Token]]:
    """Return the word pieces of texts, as far as the model reads them (text-embeddings-inference)."""
    texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    if (length := sum(map(len, texts))) > MAX_CHARACTERS:
        message = f"inputs: {length} characters are too many; send at most {MAX_CHARACTERS} per request."
        raise Problem("too_many", message, "inputs")
    found = await service.backend(request.model).tokenise(texts, request.add_special_tokens)
    return [[_token(piece) for piece in pieces] for pieces in found]


def _token(piece: Piece) -> Token:
    return Token(id=piece.id, text=piece.text, special=piece.special, start=piece.start, stop=piece.end)
