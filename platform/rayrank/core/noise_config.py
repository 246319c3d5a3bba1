"""Settings of the noise filter, which removes or relabels candidates before lists are drawn."""

from pydantic import Field

from rayrank.core.section import Section


class NoiseConfig(Section):
    """The noise filter: unjudged candidates that a model finds relevant are left out of the lists, or relabelled."""

    run: str = Field(
        default="pointwise",
        description="the run whose scores of the training candidates are compared with the threshold",
    )
    threshold: float = Field(
        default=0.9, gt=0, le=1, description="candidates with a higher probability are left out; 1 keeps all"
    )

    margin: float | None = Field(
        default=None,
        description="candidates are also left out if they score at most this much below the best positive of their "
        "query, or above it; not used if empty",
    )
    relabel: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="candidates with a higher probability become positives instead; none do if empty",
    )

    @property
    def reads_scores(self) -> bool:
        """Whether the lists depend on the scores of `run`."""
        return self.threshold < 1 or self.margin is not None or self.relabel is not None

    def unused(self) -> set[str]:
        return {name for name in ("margin", "relabel") if getattr(self, name) is None}
