"""The encoder: a pre-trained transformer of BERT's kind whose attention is STRM's or plain, by the config."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.utils import logging as transformers_logging

from rayrank.core.config import EncoderConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import locate
from rayrank.models.attention.layer_masks import LayerMasks
from rayrank.models.attention.packed import (
    RUN,
    RowMasks,
    SpreadMasks,
    bounds_of,
    can_pack,
    compile_layers,
    layers_of,
    rectangle,
    row_masks,
)
from rayrank.models.attention.per_layer import PER_LAYER, numbers_its_layers, tell_places
from rayrank.models.attention.strm import PackedCodes, packed_codes, padded_mask
from rayrank.models.batches import PackedBatch, PaddedBatch

PAPER = StrmConfig()
"""STRM as the paper has it."""

SMALLEST_HEAD = 16
"""The kernel of packed rows takes no narrower heads."""

BIAS_SCALE = 100.0
"""The bias is this times its parameter. Adam moves a parameter by about the learning rate a step, 3e-5 and the like;
so the bias can move by 3 in a thousand steps, enough to all but hide a piece."""


class Encoder(nn.Module):
    """Turns a batch into hidden states; `base` is the transformers model inside, its pooler taken out."""

    words: Tensor | None
    strm_bias: nn.Parameter | None

    def __init__(self, base: PreTrainedModel, words: NDArray[np.int8] | None, strm: StrmConfig = PAPER) -> None:
        """Take the vocabulary's word table for STRM, or None for plain attention."""
        super().__init__()
        self.base = base
        self.strm = strm
        if getattr(base, "pooler", None) is not None:
            # Nobody reads it, and weights without a gradient stop distributed training.
            base.register_module("pooler", None)
        # Where all pieces stand for their word, nothing is hidden: that is plain attention.
        plain = words is None or strm.form == "off" or strm.representative == "all"
        # Belongs to the tokenizer, not to the weights: it is rebuilt when a model is loaded.
        self.register_buffer("words", None if plain else torch.from_numpy(words), persistent=False)
        num_layers, num_heads = base.config.num_hidden_layers, base.config.num_attention_heads
        self.layers = range(0) if plain else strm_layers(strm, num_layers)
        learned = strm.form == "bias" and not plain
        self.strm_bias = nn.Parameter(torch.zeros(num_layers, num_heads)) if learned else None
        # Where every layer has the same mask, the encoder hands it to all of them by itself.
        self._per_layer = not plain and (learned or len(self.layers) < num_layers)
        if numbers_its_layers(base):
            base.set_attn_implementation(PER_LAYER)
            tell_places(base, self.layers)
        elif self._per_layer:
            raise _layers_alike(base, strm)
        # In a packed batch it is the caller who says at which position of its sequence a piece stands.
        counts_positions = hasattr(getattr(base, "embeddings", None), "position_embeddings")
        is_known = numbers_its_layers(base) and counts_positions and _head_size(base) >= SMALLEST_HEAD
        # Elsewhere batches are padded, for SDPA.
        self.packs = is_known and can_pack()
        self._places: Tensor | None = None
        _before_last_output(base, self._taken)

    def firsts(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return the last layer's (inputs, hidden) states at each input's first position, and compute no others."""
        self._places = batch.firsts()
        try:
            states: Tensor = self(batch).flatten(0, -2)
        finally:
            places, self._places = self._places, None
        # An encoder whose last layer cannot be told to has computed them all.
        states = states if len(states) == len(places) else states[places]
        return states[: batch.num_inputs]

    def _taken(self, module: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """What attention read and what was there before: where only some states are asked for, of those alone."""
        if self._places is None:
            return None
        return tuple(state.flatten(0, 1).index_select(0, self._places)[None] for state in states)

    def forward(self, batch: PaddedBatch | PackedBatch, spelled: Tensor | None = None) -> Tensor:
        """Return the last layer's states: (batch, length, hidden), or (1, length, hidden) of a packed batch.

        `spelled` has the ids whose pieces make the words, where the batch reads others in the place of some.
        """
        spelled = batch.ids if spelled is None else spelled
        if isinstance(batch, PackedBatch):
            return self._packed(batch, spelled)
        mask = batch.attention_mask
        options: dict[str, Any] = {}
        if self.words is not None:
            allowed = padded_mask(spelled, mask, self.words, self.strm.representative)
            if self._per_layer:
                options["layer_masks"] = LayerMasks(mask.bool(), allowed, self._scaled_bias())
            else:
                mask = allowed
        if getattr(self.base.config, "type_vocab_size", 0) > 1:
            options["token_type_ids"] = batch.token_types
        states: Tensor = self.base(batch.ids, attention_mask=mask, **options).last_hidden_state
        return states

    def _packed(self, batch: PackedBatch, spelled: Tensor) -> Tensor:
        learns = torch.is_grad_enabled()
        masks = self._spread_masks(batch, spelled) if learns else self._row_masks(batch, spelled)
        options: dict[str, Any] = {"layer_masks": masks}
        if getattr(self.base.config, "type_vocab_size", 0) > 1:
            options["token_type_ids"] = batch.token_types[None]
        places = batch.positions()[None] + first_position(self.base)
        states: Tensor = self.base(batch.ids[None], position_ids=places, **options).last_hidden_state
        return states

    def _row_masks(self, batch: PackedBatch, spelled: Tensor) -> RowMasks:
        seq = batch.seq.to(torch.int32)
        codes = PackedCodes(seq, seq, seq)
        if self.words is not None:
            codes = packed_codes(spelled, seq, self.words, self.strm.representative)
        return row_masks(codes, batch, self._scaled_bias())

    def _spread_masks(self, batch: PackedBatch, spelled: Tensor) -> SpreadMasks:
        spread, allowed = rectangle(batch), None
        if self.words is not None:
            ids = spelled[spread.positions].view(spread.present.shape)
            allowed = padded_mask(ids, spread.present, self.words, self.strm.representative)
        masks = LayerMasks(spread.present, allowed, self._scaled_bias())
        return SpreadMasks(spread, masks, bounds_of(batch.offsets, batch.longest))

    def compile_training(self) -> None:
        """Compile the layers for packed rows of all lengths."""
        compile_layers(self.base, run=RUN)

    def _scaled_bias(self) -> Tensor | None:
        if self.strm_bias is None:
            return None
        # The value is scaled, the gradient is not: a hundredfold gradient would be all that clipping sees.
        return self.strm_bias + (BIAS_SCALE - 1) * self.strm_bias.detach()


def first_position(base: PreTrainedModel) -> int:
    """Return the position of a sequence's first piece: 0, or 2 in encoders of RoBERTa's kind, which reserve two."""
    return int(getattr(getattr(base, "embeddings", None), "padding_idx", -1)) + 1


def check_length(base: PreTrainedModel, length: int, key: str, encoder: str) -> None:
    """Refuse a setting that makes inputs longer than the encoder has positions for."""
    positions = base.config.max_position_embeddings - first_position(base)
    if length > positions:
        raise ConfigError(
            f"{key}={length} cannot be used: {encoder} reads {positions} word pieces at most; lower {key}."
        )


def _head_size(base: PreTrainedModel) -> int:
    return int(base.config.hidden_size // base.config.num_attention_heads)


def _before_last_output(base: PreTrainedModel, hook: Callable[..., Any]) -> None:
    """Call a hook with what the last layer's attention hands to the rest of it, in encoders built as BERT is."""
    layers = layers_of(base)
    output = getattr(getattr(layers[-1], "attention", None), "output", None) if layers else None
    if isinstance(output, nn.Module):
        output.register_forward_pre_hook(hook)


def _layers_alike(base: PreTrainedModel, strm: StrmConfig) -> ConfigError:
    key = "form" if strm.form == "bias" else "first_layer" if strm.first_layer else "last_layer"
    return ConfigError(
        f"strm.{key}={getattr(strm, key)} cannot be used: {type(base).__name__} does not tell its layers apart; "
        f"set strm.form=mask for all layers, or take an encoder such as BERT, RoBERTa or ELECTRA."
    )


def strm_layers(strm: StrmConfig, num_layers: int) -> range:
    """Return the layers of an encoder that STRM changes."""
    last = num_layers - 1 if strm.last_layer is None else strm.last_layer
    if last >= num_layers:
        raise ConfigError(
            f"strm.last_layer={last} cannot be used: the encoder has {num_layers} layers, numbered from 0; "
            f"lower strm.last_layer, or leave it out for the encoder's last."
        )
    if strm.first_layer > last:
        raise ConfigError(
            f"strm.first_layer={strm.first_layer} cannot be used: STRM's last layer is {last} and the encoder has "
            f"{num_layers} layers, numbered from 0; lower strm.first_layer."
        )
    return range(strm.first_layer, last + 1)


def load_encoder(config: EncoderConfig, words: NDArray[np.int8] | None, strm: StrmConfig = PAPER) -> Encoder:
    """Return the pre-trained encoder, cut to its first layers where the config says so."""
    base = _load(config)
    if config.layers is not None:
        if config.layers > base.config.num_hidden_layers:
            raise ConfigError(
                f"encoder.layers={config.layers} cannot be used: {config.name} has {base.config.num_hidden_layers}; "
                f"lower encoder.layers."
            )
        layers = getattr(base.encoder, "layer", None)
        if not isinstance(layers, nn.ModuleList):
            raise ConfigError(
                f"encoder.layers={config.layers} cannot be used: {type(base).__name__} has one layer that it repeats; "
                f"leave encoder.layers out."
            )
        del layers[config.layers :]
        base.config.num_hidden_layers = config.layers
    return Encoder(base, words, strm)


def _load(config: EncoderConfig) -> PreTrainedModel:
    place = locate(config.name, key="encoder.name")
    try:
        with quiet():
            base, report = AutoModel.from_pretrained(
                place, attn_implementation="sdpa", output_loading_info=True, dtype=torch.float32,
                hidden_dropout_prob=config.dropout, attention_probs_dropout_prob=config.dropout,
            )  # fmt: skip
    except (OSError, ValueError, TypeError) as error:
        # A TypeError is an architecture that does not know the settings every encoder of BERT's kind has.
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"encoder.name={config.name} cannot be loaded: {reason}; name a folder on disk, or a model the hub serves, "
            f"of an encoder such as BERT, RoBERTa or ELECTRA."
        ) from None
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise ConfigError(
            f"encoder.name={config.name} cannot be used: {len(missing)} weights of {type(base).__name__} are not in "
            f"it, {missing[0]} for one; name a model whose weights belong to its config."
        )
    return base  # type: ignore[no-any-return]


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from drawing bars and listing the weights it leaves out; errors are raised all the same."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
