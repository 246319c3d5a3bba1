"""Golden pairs: texts with the score that they had in training, so that whatever serves a model can be checked."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic import TypeAdapter

from rayrank.core.config import Section
from rayrank.measure.agreement import kendall_tau
from rayrank.text.ragged import Rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

EXACT, LOOSE = 1e-3, 0.25
"""How far off a score may be: in float32, where only the order of additions differs, and, as a share of the scores'
standard deviation, with fewer bits. Weights of eight bits were seen to move scores by 0.07 of it."""


class GoldenPair(Section):
    """A query and a passage as text, and their float32 score on the training side."""

    query: str
    query_type: str | None = None
    """Empty where the model reads none."""
    passage: str
    score: float


GOLDEN_PAIRS = TypeAdapter(tuple[GoldenPair, ...])


class Parity(NamedTuple):
    """How scores of golden pairs compare with those of training."""

    num_pairs: int
    farthest: float
    """The largest difference between two scores."""
    agreement: float
    """Kendall's tau of the passages of a query, the mean over queries."""
    deviation: float
    """The standard deviation of the golden scores."""

    def objection(self, exact: bool) -> str:
        """Return what is wrong, if anything; scores that are not numbers always are."""
        most = EXACT if exact else LOOSE * self.deviation
        if self.farthest <= most:
            return ""
        return f"scores of golden pairs are off by up to {self.farthest:.4g}, and {most:.4g} is allowed"

    def finding(self) -> str:
        """Return the figures as a sentence."""
        return (
            f"{self.num_pairs} golden pairs: scores differ from training's by {self.farthest:.2g} at most, Kendall's "
            f"tau {self.agreement:.3f}"
        )


def parity(pairs: Sequence[GoldenPair], scores: ArrayLike) -> Parity:
    """Compare scores, in the order of the pairs, with those they had in training."""
    found, golden = np.asarray(scores, np.float64), np.array([pair.score for pair in pairs])
    queries: dict[tuple[str, str | None], list[int]] = {}
    for place, pair in enumerate(pairs):
        queries.setdefault((pair.query, pair.query_type), []).append(place)
    taus = [kendall_tau(found[places], golden[places]) for places in queries.values()]
    return Parity(len(pairs), float(np.abs(found - golden).max()), float(np.mean(taus)), float(golden.std()))


def spread(values: ArrayLike, count: int) -> Rows:
    """Return some places whose values lie evenly between the smallest and the largest, both included."""
    order = np.argsort(np.asarray(values), kind="stable")
    return order[np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(np.int64)]


def read_part(text: str, tokenizer: "PreTrainedTokenizerFast", num_pieces: int) -> str:
    """Return a text without what lies behind its first pieces, cut after a word: half a word has other pieces."""
    encoded = tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)
    words = encoded.word_ids()
    if len(words) <= num_pieces:
        return text
    last = num_pieces - 1
    while last + 1 < len(words) and words[last + 1] == words[last]:
        last += 1
    return text[: encoded["offset_mapping"][last][1]]
