"""Train the sentence encoder of the dense first stage on the training queries."""

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.models.sentence_encoder import load_sentence_encoder
from rayrank.stages.training import train
from rayrank.training.phases import train_dense


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the trained sentence encoder's artifact."""
    if done := store.find(train_dense.STAGE, config):
        return done
    # Workers load the encoder again. It is loaded here first, so that an unusable one is reported in one sentence and
    # not as a failed worker.
    model_config = load_sentence_encoder(config.dense).encoder.base.config
    # One worker: a query is compared with the passages of its worker's share of the batch, so several workers would
    # train another model.
    resources = config.resources.model_copy(update={"train_workers": 1})
    return train(train_dense, config.model_copy(update={"resources": resources}), store, model_config=model_config)
