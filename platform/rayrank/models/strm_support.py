"""Which layers of an encoder use STRM, and the settings of STRM that an encoder or its tokenizer does not support."""

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from rayrank.core.config import StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.architectures import SUPPORTED, architecture, takes_layer_masks
from rayrank.text.words import CONTINUES


def strm_layers(strm: StrmConfig, num_layers: int) -> range:
    """Return the indices of the layers that use STRM."""
    last = num_layers - 1 if strm.last_layer is None else strm.last_layer
    if last >= num_layers:
        raise ConfigError(
            f"strm.last_layer={last} cannot be used: the encoder has {num_layers} layers, numbered from 0; "
            f"lower strm.last_layer, or omit it for the encoder's last layer."
        )
    if strm.first_layer > last:
        raise ConfigError(
            f"strm.first_layer={strm.first_layer} cannot be used: STRM's last layer is {last} and the encoder has "
            f"{num_layers} layers, numbered from 0; lower strm.first_layer."
        )
    return range(strm.first_layer, last + 1)


def check_strm(base: PreTrainedModel, words: NDArray[np.int8], strm: StrmConfig) -> None:
    """Refuse STRM that a tokenizer or an architecture does not support."""
    name = type(base).__name__
    if not (words == CONTINUES).any():
        raise ConfigError(
            f"strm.form={strm.form} cannot be used: no piece of text.tokenizer continues a word, since none is marked "
            f"by ##, Ġ or ▁; set strm.form=off, or use a tokenizer that marks words."
        )
    if architecture(base.config).mask == "boolean" and strm.form == "bias":
        raise ConfigError(
            f"strm.form=bias cannot be used: the attention of {name} takes a mask but no bias; set strm.form=mask."
        )
    if takes_layer_masks(base):
        return
    if not base._supports_attention_backend:
        raise ConfigError(
            f"strm.form={strm.form} cannot be used: the attention masks of {name} cannot be replaced; set "
            f"strm.form=off, or use an encoder such as {SUPPORTED}."
        )
    if strm.form == "bias" or len(strm_layers(strm, base.config.num_hidden_layers)) < base.config.num_hidden_layers:
        key = "form" if strm.form == "bias" else "first_layer" if strm.first_layer else "last_layer"
        raise ConfigError(
            f"strm.{key}={getattr(strm, key)} cannot be used: the layers of {name} cannot have different attention "
            f"masks; set strm.form=mask for all layers, or use an encoder such as {SUPPORTED}."
        )
