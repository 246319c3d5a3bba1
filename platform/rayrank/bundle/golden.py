"""Golden pairs: texts with their scores at export time, to check that a served model gives the same scores."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field, TypeAdapter

from rayrank.core.config import Section
from rayrank.core.errors import ConfigError
from rayrank.measure.agreement import kendall_tau
from rayrank.scores.fusion import FUSION, Fusion, fused_scores
from rayrank.text.ragged import Rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

FLOAT32_TOLERANCE = 1e-3
"""The largest allowed difference of a score in float32, where only the order of additions differs."""

FUSED_TOLERANCE = 1e-4
"""The same for a fused score that is computed from stored scores and features."""

REDUCED_TOLERANCE = 0.25
"""The same in bfloat16, fp8 and int8, as a share of the scores' standard deviation; int8 was seen to change scores by
0.07 of it."""


class GoldenPair(Section):
    """A query and a passage as text, and their float32 score, computed from the stored ids of the corpus."""

    query: str
    query_type: str | None = None
    """None if the model's input has no query type."""
    passage: str
    score: float
    features: dict[str, float] = Field(default_factory=dict)
    """Values of the features that the score is fused with, without those that the passage does not have."""
    fused: float | None = None
    """The fused score among the golden pairs of the same query; None if the folder has no fusion."""


GOLDEN_PAIRS = TypeAdapter(tuple[GoldenPair, ...])


class Parity(NamedTuple):
    """How new scores of golden pairs differ from their stored scores."""

    num_pairs: int
    max_difference: float
    """The largest absolute difference between a new and a stored score."""
    tau: float
    """Kendall's tau between the two orders of a query's passages, averaged over queries."""
    score_std: float
    """The standard deviation of the stored scores."""

    def objection(self, exact: bool) -> str:
        """Return the reason to reject the model, or an empty string; `exact` if the new scores are float32."""
        tolerance = FLOAT32_TOLERANCE if exact else REDUCED_TOLERANCE * self.score_std
        # False for NaN, which is rejected too.
        if self.max_difference <= tolerance:
            return ""
        return f"scores of golden pairs are off by up to {self.max_difference:.4g}, and {tolerance:.4g} is allowed"

    def finding(self) -> str:
        """Return the figures as a sentence."""
        return (
            f"{self.num_pairs} golden pairs: scores differ from those at export by {self.max_difference:.2g} at most, "
            f"Kendall's tau {self.tau:.3f}"
        )


def parity(pairs: Sequence[GoldenPair], scores: ArrayLike) -> Parity:
    """Compare new scores, in the order of the pairs, with the stored ones."""
    found, golden = np.asarray(scores, np.float64), np.array([pair.score for pair in pairs])
    taus = [kendall_tau(found[indices], golden[indices]) for indices in of_queries(pairs)]
    return Parity(len(pairs), float(np.abs(found - golden).max()), float(np.mean(taus)), float(golden.std()))


def of_queries(pairs: Sequence[GoldenPair]) -> list[list[int]]:
    """Return the places of the pairs of each query."""
    queries: dict[tuple[str, str | None], list[int]] = {}
    for place, pair in enumerate(pairs):
        queries.setdefault((pair.query, pair.query_type), []).append(place)
    return list(queries.values())


def check_fusion(pairs: Sequence[GoldenPair], fusion: Fusion) -> None:
    """Raise ConfigError if this machine fuses the stored scores and features of golden pairs otherwise than training.

    Trees, for example, are read by the version of LightGBM that is installed.
    """
    fused = [pair for pair in pairs if pair.fused is not None]
    for places in of_queries(fused):
        of_query = [fused[place] for place in places]
        found = fused_scores(fusion, features_of(of_query, fusion))
        wanted = np.array([pair.fused for pair in of_query])
        if not np.allclose(found, wanted, rtol=FUSED_TOLERANCE, atol=FUSED_TOLERANCE):
            raise ConfigError(
                f"{FUSION} gives other scores here than at export, by up to {np.abs(found - wanted).max():.4g}: export "
                f"the model again with this version of rayrank."
            )


def features_of(pairs: Sequence[GoldenPair], fusion: Fusion) -> dict[str, NDArray[np.float64]]:
    """Return the values of each feature, the model's scores among them; NaN for no value."""
    given = {
        feature.name: np.array([pair.features.get(feature.name, np.nan) for pair in pairs])
        for feature in fusion.features
    }
    return {**given, fusion.model: np.array([pair.score for pair in pairs])}


def quantile_indices(values: ArrayLike, count: int) -> Rows:
    """Return the indices of at most `count` evenly spaced quantiles of the values, smallest and largest included."""
    order = np.argsort(np.asarray(values), kind="stable")
    return order[np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(np.int64)]


def truncate_after_word(text: str, tokenizer: "PreTrainedTokenizerFast", num_pieces: int) -> str:
    """Return the start of a text with at least `num_pieces` pieces, up to the end of a word.

    A word cut in the middle would be tokenised into other pieces.
    """
    encoded = tokenizer(text, add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False)
    words = encoded.word_ids()
    if len(words) <= num_pieces:
        return text
    last = num_pieces - 1
    while last + 1 < len(words) and words[last + 1] == words[last]:
        last += 1
    return text[: encoded["offset_mapping"][last][1]]
