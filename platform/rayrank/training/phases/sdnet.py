"""SDNet phase: trains layers that match words on the vectors of a frozen encoder. Settings: `SdnetConfig`.

Examples: a training query, one of its positives, and `sdnet.negatives` of its other candidates, drawn anew each epoch.
Loss: hinge loss with margin 1 between the positive and each negative. Start: the encoder that `encoder.name` names, as
it is, with plain attention, and randomly initialised layers above it. Dev metric: `training.metric` of the dev queries'
first-stage candidates, ordered by the model.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, SdnetConfig, StrmConfig, TrainingConfig
from rayrank.core.errors import ConfigError
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.models.architectures import check_length
from rayrank.models.encoder import load_encoder
from rayrank.models.inference.sdnet_scorer import SdnetScorer
from rayrank.models.inference.word_vectors import WordVectors
from rayrank.models.sdnet import SDNet, WordPairs
from rayrank.training import losses
from rayrank.training.data import Inputs, inputs_of, read_candidates, separate_inputs
from rayrank.training.phases.fine_tuning import FineTuning, with_dev_queries, word_table_of
from rayrank.training.steps import plain_model

STAGE = "sdnet"


def settings(config: PipelineConfig) -> SdnetConfig:
    """Return the phase's section of the configuration."""
    return config.sdnet


def start(config: PipelineConfig, store: Store) -> tuple[SDNet, "Sdnet"]:
    """Return the model that a worker starts from and its examples, read from storage."""
    found = store.require("candidates", config)
    candidates = {split: read_candidates(found, split) for split in ("train", "dev")}
    inputs = with_dev_queries(inputs_of(config, store, candidates, separate_inputs(config)), config)
    phase = Sdnet(inputs, word_table_of(config, store), config.sdnet, config.training, Measure.of(config))
    return new_model(config), phase


def new_model(config: PipelineConfig) -> SDNet:
    """Return a model that is not trained yet; raise ConfigError if its encoder does not fit the settings."""
    chosen, name = config.sdnet, config.encoder.name
    encoder = load_encoder(config.encoder, None, StrmConfig(form="off"))
    check_length(encoder.base, chosen.length, "sdnet.length", name)
    num_layers = encoder.base.config.num_hidden_layers
    if chosen.layers is not None and chosen.layers > num_layers:
        raise ConfigError(
            f"sdnet.layers={chosen.layers} cannot be used: {name} has {num_layers} layers; lower sdnet.layers, or "
            f"leave it empty to mix all layers and the embeddings."
        )
    return SDNet(encoder, chosen.layers, chosen.hidden, chosen.signals, chosen.dropout, chosen.match)


class Comparisons(NamedTuple):
    """Queries with their positive and their negatives: the passages of each query follow one another."""

    inputs: WordPairs


class Sdnet(FineTuning):
    """One example per training query."""

    def __init__(
        self, inputs: Inputs, words: NDArray[np.int8], config: SdnetConfig, training: TrainingConfig,
        measure: Measure = MRR_10,
    ) -> None:  # fmt: skip
        super().__init__(STAGE, inputs, training, measure)
        self._num_negatives, self._words = config.negatives, words
        self._vectors = WordVectors(inputs.texts, words)

    def num_examples(self) -> int:
        return len(self.query_indices)

    def examples(self, epoch: int) -> Any:
        """Return an array with the rows of a query, its positive and its negatives for each example."""
        found = np.empty((len(self.query_indices), 2 + self._num_negatives), np.int64)
        for example, index in zip(found, self.query_indices, strict=True):
            rng = self.generator(epoch, int(self.split.queries[index]))
            negatives = self.split.negatives(index)
            example[0], example[1] = self.split.queries[index], rng.choice(self.split.positives[index])
            example[2:] = rng.choice(negatives, self._num_negatives, replace=len(negatives) < self._num_negatives)
        return found[self.order(len(found), epoch)]

    def prepare(self, model: nn.Module, examples: Any) -> Comparisons:
        """Return examples as vectors of words on the model's device."""
        queries = np.repeat(examples[:, 0], 1 + self._num_negatives)
        return Comparisons(self._vectors.pairs(plain_model(model), queries, examples[:, 1:].ravel()))

    def loss(self, model: nn.Module, prepared: Comparisons) -> tuple[Tensor, Tensor]:
        """Return the hinge loss, and the pairs' scores."""
        scores: Tensor = model(prepared.inputs)
        of_query = scores.view(-1, 1 + self._num_negatives)
        return losses.hinge(of_query[:, :1], of_query[:, 1:]), scores

    def scorer(self, model: nn.Module) -> SdnetScorer:
        # With the layers mixed as they are now, which is one vector a word: batches can have many times more words, and
        # the LSTMs take about as long for a large batch as for a small one.
        mixed = WordVectors(self.inputs.texts, self._words, mixes_layers=True)
        return SdnetScorer(plain_model(model), self.inputs.texts, mixed)
