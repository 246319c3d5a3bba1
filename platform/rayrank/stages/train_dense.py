"""Train the sentence encoder of the dense first stage on the training queries."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.models.sentence_encoder import load_sentence_encoder
from rayrank.stages.training import train
from rayrank.training.phases import train_dense


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the trained sentence encoder's artifact."""
    # Loaded here too: an unusable encoder is reported as one sentence here, but as a failed worker there.
    shape = load_sentence_encoder(config.dense).encoder.base.config
    return train(train_dense, config, store, shape=shape)
