"""What the training stages share: a phase on the cluster, its best weights stored, its checkpoints removed."""

import time
from collections.abc import Callable
from functools import partial

from torch import nn
from transformers import PretrainedConfig

from rayrank.cluster.connection import start_ray
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PhaseConfig, PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.leases import leased
from rayrank.core.progress import say
from rayrank.models.encoder import load_encoder
from rayrank.models.saved import save
from rayrank.text.pieces import load_tokenizer
from rayrank.training.loop import Phase
from rayrank.training.ray_train import RUN, Report, run_phase

Setup = Callable[[PipelineConfig, Store], tuple[nn.Module, Phase]]


def train(
    stage: str, settings: PhaseConfig, setup: Setup, config: PipelineConfig, store: Store, *,
    report: Report | None = None, **facts: object,
) -> Artifact:  # fmt: skip
    """Return a training stage's artifact: model/, log.jsonl and tensorboard/; its manifest has these facts as well.

    If another process is training the same artifact, wait for it and return its result.
    """
    if done := store.find(stage, config):
        done.remove_folder(RUN)  # who finished it may have been killed before that
        return done
    artifact = store.artifact(stage, config)
    for needed in flow.inputs(stage, config):
        store.require(needed, config)
    # Cheap, and a name that cannot be loaded or a layer that is not there is then one sentence, not a lost worker.
    shape = load_encoder(config.encoder, None).base.config
    _check_fit(config, shape, reads_pairs="input" in flow.STAGES[stage].sections)
    with leased(artifact, f"training {stage}"):
        if done := store.find(stage, config):
            say(f"{stage}: the other process has finished it; its model is used")
            return done
        started = time.monotonic()
        start_ray()
        trained = run_phase(
            partial(setup, config, store),
            settings,
            training=config.training,
            resources=config.resources,
            artifact=artifact,
            label=stage,
            report=report,
        )
        save(artifact, shape, trained.weights)
        store.finish(artifact, config, started, {**facts, **trained.facts})
        artifact.remove_folder(RUN)
    return artifact


def _check_fit(config: PipelineConfig, shape: PretrainedConfig, reads_pairs: bool) -> None:
    """Refuse an encoder that cannot read the corpus's ids, or not as many of them at once."""
    encoder, tokenizer = config.encoder.name, config.text.tokenizer
    vocabulary = load_tokenizer(tokenizer).get_vocab()
    own = _vocabulary_of(encoder) if encoder != tokenizer else None
    if len(vocabulary) > shape.vocab_size or (own is not None and own != vocabulary):
        raise ConfigError(
            f"encoder.name={encoder} does not know the word pieces of text.tokenizer={tokenizer}: name the same model "
            f"in both."
        )
    texts, inputs = config.text, config.input
    # What is served is cut by the input alone, and could be longer than anything learnt.
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
    # Encoders of RoBERTa's kind keep two positions for padding.
    positions = shape.max_position_embeddings - (2 if "roberta" in shape.model_type else 0)
    if reads_pairs and config.input.length > positions:
        raise ConfigError(
            f"input.length={config.input.length} cannot be used: {encoder} reads {positions} word pieces at most; "
            f"lower input.length."
        )


def _vocabulary_of(encoder: str) -> dict[str, int] | None:
    try:
        return load_tokenizer(encoder).get_vocab()
    except ConfigError:  # weights without a tokenizer beside them: their size has to do
        return None
