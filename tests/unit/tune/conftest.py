"""A study with trials in every state."""

from pathlib import Path

import optuna
import pytest
from optuna.study import Study
from optuna.trial import TrialState

from rayrank.core.artifacts import Artifact
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import build
from rayrank.tune.spaces import Space, open_space
from rayrank.tune.study import open_storage, open_study

VALUES = (0.41, 0.40, 0.44, 0.43, 0.42)


@pytest.fixture
def config() -> PipelineConfig:
    return build("demo", assignments=["listwise.negatives=5", "noise.threshold=0.6", "listwise.lr=1e-4"])


@pytest.fixture
def space(config: PipelineConfig) -> Space:
    return open_space("default", config)


@pytest.fixture
def folder(tmp_path: Path) -> Artifact:
    return Artifact(str(tmp_path), "sweeps", "abc")


@pytest.fixture
def study(folder: Artifact, space: Space, config: PipelineConfig) -> Study:
    """Five finished trials, the first with the configured settings, one stopped early, one failed, one running."""
    study = open_study(open_storage(folder), cost=False)
    study.sampler = optuna.samplers.RandomSampler(seed=3)
    study.enqueue_trial(space.initial_points(config)[0])
    for value in VALUES:
        trial = study.ask()
        space.suggest(trial)
        trial.set_user_attr("seconds", 12.5)
        study.tell(trial, value)
    stopped = study.ask()
    space.suggest(stopped)
    stopped.report(0.2, 1)
    study.tell(stopped, state=TrialState.PRUNED)
    failed = study.ask()
    space.suggest(failed)
    failed.set_user_attr("reason", "The loss at step 3 is nan: <lower> the learning rate.")
    study.tell(failed, state=TrialState.FAIL)
    space.suggest(study.ask())
    return study
