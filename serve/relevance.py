"""Which passages of a request are returned: those that are likely enough to be relevant, or none."""

from collections.abc import Sequence
from dataclasses import dataclass

from rayrank.core.errors import ConfigError
from rayrank.scores.precision import PrecisionTable
from rayrank.serve.records import Ask

UNCALIBRATED = (
    "min_relevance: this model has no calibration, so the probability of a passage is only the sigmoid of its score."
)


@dataclass(frozen=True)
class Thresholds:
    """What a passage must reach to be returned. None means no threshold."""

    probability: float | None = None
    logit: float | None = None
    wish: str = ""
    """The request's fields, to quote them."""

    @classmethod
    def of(cls, ask: Ask, table: PrecisionTable | None) -> "Thresholds":
        """Return the thresholds of a request; a wanted precision that the table cannot give raises ConfigError."""
        logit = None
        if ask.min_precision is not None:
            if table is None:
                raise ConfigError(
                    f"min_precision={ask.min_precision:g} cannot be given: the model's folder has no table of "
                    f"thresholds; export the model again on a dataset with a dev split, or send min_relevance."
                )
            logit = table.threshold(ask.min_precision)
        wishes = {"min_relevance": ask.min_relevance, "min_precision": ask.min_precision}
        wish = " and ".join(f"{name}={value:g}" for name, value in wishes.items() if value is not None)
        return cls(ask.min_relevance, logit, wish)

    def select(
        self, order: Sequence[int], logits: Sequence[float | None], probabilities: Sequence[float | None],
        calibrated: bool,
    ) -> tuple[list[int], list[str]]:  # fmt: skip
        """Return the positions that reach the thresholds, in their order, and warnings: if none does, and if
        probabilities that the client relies on are not calibrated."""
        kept = [place for place in order if self._is_reached(logits[place], probabilities[place])]
        warnings = [UNCALIBRATED] if self.probability is not None and not calibrated else []
        if order and not kept:
            best = max(probabilities[place] or 0.0 for place in order)
            warnings.append(f"No result: no passage reaches {self.wish}; the best has the probability {best:.3f}.")
        return kept, warnings

    def _is_reached(self, logit: float | None, probability: float | None) -> bool:
        return (self.logit is None or (logit is not None and logit >= self.logit)) and (
            self.probability is None or (probability is not None and probability >= self.probability)
        )
