"""What the training stages share: a phase on the cluster, its best weights stored, its checkpoints removed."""

import time
from collections.abc import Callable
from functools import partial

from torch import nn

from rayrank import flow
from rayrank.artifacts import Artifact, Store
from rayrank.config import PhaseConfig, RunConfig
from rayrank.modeling.encoder import load_encoder
from rayrank.modeling.saved import save
from rayrank.stages.cluster import start_ray
from rayrank.training.loop import Phase
from rayrank.training.ray_train import RUN, run_phase

Setup = Callable[[RunConfig, Store], tuple[nn.Module, Phase]]


def train(
    stage: str, settings: PhaseConfig, setup: Setup, config: RunConfig, store: Store, **facts: object
) -> Artifact:
    """Return a training stage's artifact: model/, log.jsonl and tensorboard/; its manifest has these facts as well."""
    if done := store.find(stage, config):
        return done
    started = time.monotonic()
    artifact = store.artifact(stage, config)
    for needed in flow.inputs(stage, config):
        store.require(needed, config)
    # Cheap, and a name that cannot be loaded or a layer that is not there is then one sentence, not a lost worker.
    shape = load_encoder(config.encoder, None).base.config
    start_ray()
    trained = run_phase(
        partial(setup, config, store),
        settings,
        training=config.training,
        resources=config.resources,
        artifact=artifact,
        label=stage,
    )
    save(artifact, shape, trained.weights)
    store.finish(artifact, config, started, {**facts, **trained.facts})
    artifact.remove_folder(RUN)
    return artifact
