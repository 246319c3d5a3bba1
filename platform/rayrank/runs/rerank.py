"""Rerank: the candidates of another run, scored by a trained model."""

from typing import Any

from pydantic import Field

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES, RunInMaking, RunKind, RunSettings


class RerankSettings(RunSettings):
    """Which candidates are scored, and by which model."""

    of: str = Field(default=CANDIDATES, description="the run whose passages are scored")
    model: str = Field(description="the training phase whose model scores them: pointwise, listwise, soup or sdnet")


class Rerank(RunKind):
    """The candidates of another run, scored by the model of a training phase."""

    Settings = RerankSettings

    def inputs(self, settings: RerankSettings, config: PipelineConfig) -> tuple[str, ...]:
        allowed = [name for name, stage in flow.STAGES.items() if stage.scores_pairs]
        if settings.model.partition("@")[0] not in allowed:
            raise ConfigError(
                f"A run of kind rerank cannot have model={settings.model}: choose one of {', '.join(allowed)}."
            )
        if settings.model == "soup" and not config.listwise.soup:
            raise ConfigError(
                "A run of kind rerank with model=soup needs seeds: set two or more, as in listwise.soup=[13,14,15]."
            )
        texts = flow.pair_inputs(config) if flow.reads_pairs(settings.model) else ("corpus",)
        return (*texts, settings.model)

    def make(self, run: RunInMaking) -> dict[str, Any]:
        # Imported late: torch takes seconds to load, and the settings of runs are read without it.
        from rayrank.runs.scoring import score

        return score(run)
