"""Rerank: the candidates of another run under the scores of a trained model."""

from typing import Any

from pydantic import Field

from rayrank.core import flow
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.run_kinds import CANDIDATES, RunInMaking, RunKind, RunSettings


class RerankSettings(RunSettings):
    """Which candidates are scored, and by which model."""

    of: str = Field(default=CANDIDATES, description="the run whose passages are scored")
    model: str = Field(description="the training phase whose model scores them: pointwise or listwise")


class Rerank(RunKind):
    """Scores by a model of one of the training phases."""

    Settings = RerankSettings

    def inputs(self, settings: RerankSettings, config: PipelineConfig) -> tuple[str, ...]:
        able = [name for name, stage in flow.STAGES.items() if stage.scores_pairs]
        if settings.model not in able:
            raise ConfigError(f"A run's model={settings.model} cannot be used: choose one of {', '.join(able)}.")
        return (*flow.pair_inputs(config), settings.model)

    def make(self, run: RunInMaking) -> dict[str, Any]:
        # Importing torch takes seconds, and the settings of runs are read before it is needed.
        from rayrank.runs.scoring import score

        return score(run)
