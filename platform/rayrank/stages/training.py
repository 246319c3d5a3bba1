"""What the training stages share: train a phase on the cluster, store its best weights, remove its checkpoints."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from rayrank.cluster.connection import start_ray
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import FineTuningConfig, PhaseConfig, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.leases import leased
from rayrank.core.progress import say
from rayrank.models.architectures import check_length
from rayrank.models.encoder import load_encoder
from rayrank.models.saved import save
from rayrank.text.markers import num_ids
from rayrank.text.pieces import load_tokenizer
from rayrank.training.loop import Phase
from rayrank.training.ray_train import CHECKPOINTS, Report, train_phase


class PhaseFile(Protocol):
    """A module of `rayrank.training.phases`."""

    STAGE: str

    def settings(self, config: PipelineConfig) -> PhaseConfig:
        """Return the phase's section of the configuration."""

    def start(self, config: PipelineConfig, store: Store) -> tuple[nn.Module, Phase]:
        """Return the model that a worker starts from and its examples, read from storage."""


def train(
    phase: PhaseFile, config: PipelineConfig, store: Store, report: Report | None = None,
    model_config: PretrainedConfig | None = None, notes: Callable[[], list[str]] = list, **facts: object,
) -> Artifact:  # fmt: skip
    """Return a training stage's artifact (model/, log.jsonl, tensorboard/).

    `facts` are added to its manifest, and what `notes` returns to the findings there. `model_config` is the config of
    a model that the stage has checked itself; without it the phase trains the encoder that `encoder.name` names. If
    another process is training the same artifact, wait for it and return its result.
    """
    stage = phase.STAGE
    if done := store.find(stage, config):
        done.remove_folder(CHECKPOINTS)  # left behind by a job that was killed right after store.finish
        return done
    artifact = store.artifact(stage, config)
    for needed in flow.inputs(stage, config):
        store.require(needed, config)
    model_config = model_config or _encoder_config(config, reads_pairs=flow.reads_pairs(stage))
    with leased(artifact, f"training {stage}"):
        if done := store.find(stage, config):
            say(f"{stage}: the other process has finished it; its result is used")
            return done
        started = time.monotonic()
        start_ray()
        settings = phase.settings(config)
        trained = train_phase(
            partial(phase.start, config, store),
            settings,
            section=next(name for name, value in config if value is settings),
            training=settings.seeded(config.training) if isinstance(settings, FineTuningConfig) else config.training,
            resources=config.resources,
            artifact=artifact,
            label=stage,
            report=report,
        )
        save(artifact, model_config, trained.weights, trained.description)
        found = [*notes(), *trained.facts.get("findings", []), *_findings(stage, config.training.metric, trained.facts)]
        store.finish(artifact, config, started, {**facts, **trained.facts, **({"findings": found} if found else {})})
        artifact.remove_folder(CHECKPOINTS)
    return artifact


def _findings(stage: str, metric: str, facts: dict[str, Any]) -> list[str]:
    """Return sentences about a training that did not improve its start, or that ended below its first stage."""
    dev, first = facts["dev"], facts.get("first_stage_dev", -math.inf)
    found = []
    if facts["best_step"] == 0:
        found.append(
            f"{stage}: none of the {facts['num_steps']:,} steps improved {metric} on dev ({dev:.4f}), so the weights "
            f"that the phase started from are kept"
        )
    if dev < first:
        found.append(
            f"{stage}: {metric} on dev is {dev:.4f}, below the {first:.4f} of the first stage; likely causes are too "
            f"few steps ({facts['num_steps']:,}; raise {stage}.min_steps), a learning rate that is too high "
            f"({facts['lr']:.2g}; lower {stage}.lr), or too few or wrong judgments"
        )
    return found


def _encoder_config(config: PipelineConfig, reads_pairs: bool) -> PretrainedConfig:
    """Return the config of the encoder that `encoder.name` names."""
    # Workers load the encoder again. It is loaded here first, so that an unusable one is reported in one sentence and
    # not as a failed worker.
    encoder = load_encoder(config.encoder, None)
    base = encoder.base
    _check_fit(config, base, reads_pairs)
    if reads_pairs and config.input.markers:
        try:
            encoder.add_ids(num_ids(load_tokenizer(config.text.tokenizer), config.input), 2 * config.input.markers)
        except NotImplementedError:
            raise ConfigError(
                f"input.markers={config.input.markers} cannot be used: the vocabulary of {config.encoder.name} cannot "
                f"be extended; set input.markers=0."
            ) from None
    return base.config


def _check_fit(config: PipelineConfig, base: PreTrainedModel, reads_pairs: bool) -> None:
    """Refuse an encoder with another vocabulary than the corpus, and inputs that it cannot read or the corpus lacks."""
    encoder, tokenizer = config.encoder.name, config.text.tokenizer
    vocabulary = load_tokenizer(tokenizer).get_vocab()
    own = _vocabulary_of(encoder) if encoder != tokenizer else None
    if len(vocabulary) > base.config.vocab_size or (own is not None and own != vocabulary):
        raise ConfigError(
            f"encoder.name={encoder} does not know the word pieces of text.tokenizer={tokenizer}: name the same model "
            f"in both."
        )
    texts, inputs = config.text, config.input
    # The endpoint truncates texts by `input` alone. With these checks, training and endpoint read equally much of a
    # passage whose query has full length; with a shorter query the endpoint may read more than the corpus stores.
    if inputs.query_length > texts.query_pieces:
        raise ConfigError(
            f"input.query_length={inputs.query_length} cannot be used: the corpus keeps text.query_pieces="
            f"{texts.query_pieces} of a query; raise text.query_pieces, or lower input.query_length."
        )
    if inputs.length - inputs.query_length > texts.passage_pieces:
        raise ConfigError(
            f"input.length={inputs.length} cannot be used: the corpus keeps text.passage_pieces={texts.passage_pieces} "
            f"of a passage; raise text.passage_pieces, or lower input.length."
        )
    if reads_pairs:
        check_length(base, inputs.length, "input.length", encoder)


def _vocabulary_of(encoder: str) -> dict[str, int] | None:
    try:
        return load_tokenizer(encoder).get_vocab()
    except ConfigError:  # a folder of weights without a tokenizer: only the size of its vocabulary can be compared
        return None
