"""How fast the parts of a re-ranker learn: rates that fall from layer to layer, and embeddings that stay fixed."""

from collections.abc import Iterator
from typing import cast

from torch import nn
from torch.nn import Parameter

from rayrank.core.config import FineTuningConfig, PhaseConfig
from rayrank.core.errors import ConfigError
from rayrank.models.architectures import layers_of
from rayrank.models.reranker import Reranker


def rate_factors(model: nn.Module, config: PhaseConfig) -> dict[Parameter, float]:
    """Return the share of the learning rate of each parameter that does not have all of it."""
    decay = config.layer_decay if isinstance(config, FineTuningConfig) else 1.0
    if decay == 1 or not isinstance(model, Reranker):
        return {}
    layers = layers_of(model.encoder.base)
    if not layers:
        raise ConfigError(
            f"layer_decay={decay:g} cannot be used: the layers of this encoder are not separate modules; set it to 1."
        )
    found = dict.fromkeys(_embeddings(model), decay ** (len(layers) + 1))
    for index, layer in enumerate(layers):
        found |= dict.fromkeys(layer.parameters(), decay ** (len(layers) - index))
    return found


def with_frozen_parts(model: Reranker, config: FineTuningConfig) -> Reranker:
    """Return the model after freezing its embeddings, if the settings say so."""
    if config.freeze_embeddings:
        for parameter in _embeddings(model):
            parameter.requires_grad_(False)
    return model


def _embeddings(model: Reranker) -> Iterator[Parameter]:
    return cast(nn.Module, model.encoder.base.embeddings).parameters()
