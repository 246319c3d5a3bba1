"""The encoder: a pre-trained transformer such as BERT, with STRM or plain attention."""

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
from rayrank.models.attention.packed_scoring import PackedScoringMasks, can_pack, packed_scoring_masks
from rayrank.models.attention.packed_training import FlashAttention, PackedTrainingMasks, padded_layout
from rayrank.models.attention.padded import PaddedMasks
from rayrank.models.attention.per_layer import PER_LAYER, has_layer_indices, set_layer_indices
from rayrank.models.attention.strm import PackedCodes, packed_codes, padded_mask
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.layers import compile_layers, layers_of

PAPER_STRM = StrmConfig()
"""STRM as the DR-BERT paper describes it."""

MIN_HEAD_SIZE = 16
"""The smallest attention heads that the Triton kernel for packed batches supports."""

BIAS_SCALE = 100.0
"""STRM's learned bias is its parameter multiplied by this. Adam changes a parameter by about the learning rate per
step, e.g. 3e-5, so the scaled bias can change by 3 in a thousand steps, enough to nearly hide a piece."""

TRAINING_GROUP_SHARE = 1 / 4
"""The share of the layers that are compiled into one graph for training. The CPU needs a millisecond to call a graph,
too long for one graph per layer; compiling all of BERT-large as one graph had not finished after 100 s."""


class Encoder(nn.Module):
    """Computes the hidden states of a batch; `base` is the transformers model without its pooler."""

    words: Tensor | None
    strm_bias: nn.Parameter | None

    def __init__(self, base: PreTrainedModel, words: NDArray[np.int8] | None, strm: StrmConfig = PAPER_STRM) -> None:
        """Wrap `base`; `words` is the vocabulary's word table for STRM, or None for plain attention."""
        super().__init__()
        self.base = base
        self.strm = strm
        if getattr(base, "pooler", None) is not None:
            # The pooler's output is unused, and parameters without a gradient break distributed training.
            base.register_module("pooler", None)
        # With all pieces as representatives STRM hides nothing, which is plain attention.
        plain = words is None or strm.form == "off" or strm.representative == "all"
        # Not persistent: the table belongs to the tokenizer and is rebuilt when a model is loaded.
        self.register_buffer("words", None if plain else torch.from_numpy(words), persistent=False)
        num_layers, num_heads = base.config.num_hidden_layers, base.config.num_attention_heads
        self.strm_layers = range(0) if plain else strm_layers(strm, num_layers)
        learned = strm.form == "bias" and not plain
        self.strm_bias = nn.Parameter(torch.zeros(num_layers, num_heads)) if learned else None
        # A mask that is the same in every layer is passed as the encoder's ordinary attention mask.
        self._per_layer = not plain and (learned or len(self.strm_layers) < num_layers)
        if has_layer_indices(base):
            base.set_attn_implementation(PER_LAYER)
            set_layer_indices(base, self.strm_layers)
        elif self._per_layer:
            raise _no_layer_masks(base, strm)
        self.packs = _supports_packing(base) and can_pack()
        """Whether batches can be packed on a GPU; otherwise they are padded."""
        self._cls_positions: Tensor | None = None
        _hook_last_output(base, self._select_cls)

    def cls_states(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return the last layer's (inputs, hidden) states at each input's first position, [CLS].

        After its attention the last layer computes only these positions, in encoders with BERT's module structure.
        """
        self._cls_positions = batch.first_positions()
        try:
            states: Tensor = self(batch).flatten(0, -2)
        finally:
            positions, self._cls_positions = self._cls_positions, None
        # Other encoders, whose last layer has no hook, have computed all positions.
        states = states if len(states) == len(positions) else states[positions]
        return states[: batch.num_inputs]

    def _select_cls(self, module: nn.Module, states: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """Forward pre-hook of the last layer's attention output: keep the [CLS] positions, if only they are needed."""
        if self._cls_positions is None:
            return None
        return tuple(state.flatten(0, 1).index_select(0, self._cls_positions)[None] for state in states)

    def forward(self, batch: PaddedBatch | PackedBatch, original_ids: Tensor | None = None) -> Tensor:
        """Return the last layer's states: (batch, length, hidden), or (1, length, hidden) of a packed batch.

        `original_ids` are the ids before pieces were masked for pre-training, from which STRM derives the words.
        """
        original_ids = batch.ids if original_ids is None else original_ids
        if isinstance(batch, PackedBatch):
            return self._forward_packed(batch, original_ids)
        mask = batch.attention_mask
        options: dict[str, Any] = {}
        if self.words is not None:
            allowed = padded_mask(original_ids, mask, self.words, self.strm.representative)
            if self._per_layer:
                options["layer_masks"] = PaddedMasks(mask.bool(), allowed, self._scaled_bias())
            else:
                mask = allowed
        if getattr(self.base.config, "type_vocab_size", 0) > 1:
            options["token_type_ids"] = batch.token_types
        states: Tensor = self.base(batch.ids, attention_mask=mask, **options).last_hidden_state
        return states

    def _forward_packed(self, batch: PackedBatch, original_ids: Tensor) -> Tensor:
        make_masks = self._training_masks if torch.is_grad_enabled() else self._scoring_masks
        options: dict[str, Any] = {"layer_masks": make_masks(batch, original_ids)}
        if getattr(self.base.config, "type_vocab_size", 0) > 1:
            options["token_type_ids"] = batch.token_types[None]
        position_ids = batch.positions()[None] + first_position(self.base)
        states: Tensor = self.base(batch.ids[None], position_ids=position_ids, **options).last_hidden_state
        return states

    def _scoring_masks(self, batch: PackedBatch, original_ids: Tensor) -> PackedScoringMasks:
        seq = batch.seq.to(torch.int32)
        codes = PackedCodes(seq, seq, seq)
        if self.words is not None:
            codes = packed_codes(original_ids, seq, self.words, self.strm.representative)
        return packed_scoring_masks(codes, batch, self._scaled_bias())

    def _training_masks(self, batch: PackedBatch, original_ids: Tensor) -> PackedTrainingMasks:
        layout, allowed = padded_layout(batch), None
        if self.words is not None:
            ids = original_ids[layout.positions].view(layout.present.shape)
            allowed = padded_mask(ids, layout.present, self.words, self.strm.representative)
        masks = PaddedMasks(layout.present, allowed, self._scaled_bias())
        return PackedTrainingMasks(layout, masks, FlashAttention.over(batch))

    def compile_for_training(self) -> None:
        """Compile the layers for packed rows of all lengths."""
        compile_layers(self.base, TRAINING_GROUP_SHARE)

    def _scaled_bias(self) -> Tensor | None:
        if self.strm_bias is None:
            return None
        # Only the value is scaled: a gradient a hundred times larger would dominate the norm that clipping uses.
        return self.strm_bias + (BIAS_SCALE - 1) * self.strm_bias.detach()


def _supports_packing(base: PreTrainedModel) -> bool:
    """Return whether each layer can get its own mask, positions can be passed in, and heads are large enough."""
    takes_positions = hasattr(getattr(base, "embeddings", None), "position_embeddings")
    head_size = int(base.config.hidden_size // base.config.num_attention_heads)
    return has_layer_indices(base) and takes_positions and head_size >= MIN_HEAD_SIZE


def first_position(base: PreTrainedModel) -> int:
    """Return the position of a sequence's first piece: 0, or 2 in encoders like RoBERTa, which reserve two."""
    return int(getattr(getattr(base, "embeddings", None), "padding_idx", -1)) + 1


def check_length(base: PreTrainedModel, length: int, key: str, encoder: str) -> None:
    """Refuse a setting that makes inputs longer than the encoder has positions for."""
    positions = base.config.max_position_embeddings - first_position(base)
    if length > positions:
        raise ConfigError(
            f"{key}={length} cannot be used: {encoder} reads {positions} word pieces at most; lower {key}."
        )


def _hook_last_output(base: PreTrainedModel, hook: Callable[..., Any]) -> None:
    """Register a forward pre-hook on the output module of the last layer's attention, if there is one as in BERT."""
    layers = layers_of(base)
    output = getattr(getattr(layers[-1], "attention", None), "output", None) if layers else None
    if isinstance(output, nn.Module):
        output.register_forward_pre_hook(hook)


def _no_layer_masks(base: PreTrainedModel, strm: StrmConfig) -> ConfigError:
    key = "form" if strm.form == "bias" else "first_layer" if strm.first_layer else "last_layer"
    return ConfigError(
        f"strm.{key}={getattr(strm, key)} cannot be used: the layers of {type(base).__name__} cannot have different "
        f"attention masks; set strm.form=mask for all layers, or use an encoder such as BERT, RoBERTa or ELECTRA."
    )


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


def load_encoder(
    config: EncoderConfig, words: NDArray[np.int8] | None, strm: StrmConfig = PAPER_STRM, key: str = "encoder.name"
) -> Encoder:
    """Return the pre-trained encoder with the first `config.layers` of its layers, or all of them.

    `key` is the setting that an error names.
    """
    base = _load(config, key)
    if config.layers is not None:
        if config.layers > base.config.num_hidden_layers:
            raise ConfigError(
                f"encoder.layers={config.layers} cannot be used: {config.name} has {base.config.num_hidden_layers} "
                f"layers; lower encoder.layers."
            )
        layers = getattr(base.encoder, "layer", None)
        if not isinstance(layers, nn.ModuleList):
            raise ConfigError(
                f"encoder.layers={config.layers} cannot be used: all layers of {type(base).__name__} are one module; "
                f"omit encoder.layers."
            )
        del layers[config.layers :]
        base.config.num_hidden_layers = config.layers
    return Encoder(base, words, strm)


def _load(config: EncoderConfig, key: str) -> PreTrainedModel:
    path = locate(config.name, key=key)
    try:
        with quiet():
            base, report = AutoModel.from_pretrained(
                path, attn_implementation="sdpa", output_loading_info=True, dtype=torch.float32,
                hidden_dropout_prob=config.dropout, attention_probs_dropout_prob=config.dropout,
            )  # fmt: skip
    except (OSError, ValueError, TypeError) as error:
        # TypeError: the architecture does not accept the dropout settings that encoders like BERT have.
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"{key}={config.name} cannot be loaded: {reason}; name a folder on disk or a model on the Hugging "
            f"Face hub that holds an encoder such as BERT, RoBERTa or ELECTRA."
        ) from None
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise ConfigError(
            f"{key}={config.name} cannot be used: it lacks {len(missing)} weights of {type(base).__name__}, "
            f"such as {missing[0]}; name a model whose weights match its config."
        )
    return base  # type: ignore[no-any-return]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and log messages of transformers; exceptions are still raised."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity(logging.ERROR)
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
