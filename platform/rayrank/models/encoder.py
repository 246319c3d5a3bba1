"""The encoder: a pre-trained transformer such as BERT, with STRM or plain attention."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, PreTrainedModel
from transformers.utils import logging as transformers_logging

from rayrank.core.config import EncoderConfig, StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import locate
from rayrank.core.progress import say
from rayrank.models.architectures import (
    SUPPORTED,
    architecture,
    attention_modules,
    first_position,
    has_token_types,
    layers_of,
    part,
    takes_layer_masks,
    why_padded,
)
from rayrank.models.attention.packed_scoring import PackedScoringMasks, can_pack, packed_scoring_masks
from rayrank.models.attention.packed_training import FlashAttention, PackedTrainingMasks, padded_layout
from rayrank.models.attention.padded import LayerIndex, PaddedMasks
from rayrank.models.attention.per_layer import PER_LAYER, LayerMasks, MaskArguments, set_layer_indices
from rayrank.models.attention.strm import PackedCodes, packed_codes, padded_mask
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.layers import compile_layers
from rayrank.models.strm_support import check_strm, strm_layers
from rayrank.text.words import ALONE

PAPER_STRM = StrmConfig()
"""STRM as the DR-BERT paper describes it."""

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
        if getattr(base, "pooler", None) is not None:
            # The pooler's output is unused, and parameters without a gradient break distributed training.
            base.register_module("pooler", None)
        # With all pieces as representatives STRM hides nothing, which is plain attention.
        if strm.form == "off" or strm.representative == "all":
            words = None
        if words is not None:
            check_strm(base, words, strm)
        num_layers, num_heads = base.config.num_hidden_layers, base.config.num_attention_heads
        learned = strm.form == "bias" and words is not None
        self.strm_bias = nn.Parameter(torch.zeros(num_layers, num_heads)) if learned else None
        set_layer_indices(base)
        self._mask_arguments = MaskArguments(base) if architecture(base.config).mask != "backend" else None
        if self._mask_arguments is None and takes_layer_masks(base):
            base.set_attn_implementation(PER_LAYER)
        # Not persistent: the table belongs to the tokenizer and is rebuilt when a model is loaded.
        self.register_buffer("words", None, persistent=False)
        self.use_strm(None if words is None else torch.from_numpy(words), strm)
        self.packs = not why_padded(base) and can_pack()
        """Whether batches can be packed on a GPU; otherwise they are padded."""
        self._cls_positions: Tensor | None = None
        _hook_last_output(base, self._select_cls)

    def add_ids(self, num_ids: int, num_new: int) -> None:
        """Extend the vocabulary to at least this many ids; the last `num_new` of them get random embeddings."""
        embeddings = self.base.resize_token_embeddings(max(num_ids, self.base.config.vocab_size), mean_resizing=False)
        # All of them: some encoders have embeddings without a piece of the tokenizer, which were never trained.
        embeddings.weight.data[num_ids - num_new : num_ids].normal_(std=self.base.config.initializer_range)
        self.use_strm(self.words, self.strm)

    def use_strm(self, words: Tensor | None, strm: StrmConfig) -> None:
        """Use STRM with a word table from now on, or plain attention if there is none."""
        self.words, self.strm = None if words is None else self.all_words(words), strm
        num_layers = self.base.config.num_hidden_layers
        self.strm_layers = range(0) if words is None else strm_layers(strm, num_layers)
        layers = [cast(LayerIndex, module.layer_index) for module in attention_modules(self.base)]
        for index, layer in enumerate(layers):
            layer.has_strm = index in self.strm_layers
        is_same = self.strm_bias is None and len(self.strm_layers) == num_layers
        has_windows = any(layer.window is not None for layer in layers)
        # A mask that is the same in every layer is passed as the encoder's ordinary attention mask.
        self._per_layer = has_windows or (words is not None and (self._mask_arguments is not None or not is_same))

    def all_words(self, words: Tensor) -> Tensor:
        """Extend a word table to all ids. Those that the tokenizer does not know are words of their own, as markers."""
        return functional.pad(words, (0, max(0, self.base.config.vocab_size - len(words))), value=ALONE)

    def cls_states(self, batch: PaddedBatch | PackedBatch) -> Tensor:
        """Return the last layer's (inputs, hidden) states at each input's first position, [CLS].

        After its attention the last layer computes only these positions, if the architecture names what comes after.
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
        """Forward pre-hook after the last layer's attention: keep the [CLS] positions, if only they are needed."""
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
        mask, masks = batch.attention_mask, None
        if self.words is not None:
            mask = padded_mask(original_ids, mask, self.words, self.strm.representative)
        if self._per_layer:
            allowed = None if self.words is None else mask
            mask, masks = batch.attention_mask, PaddedMasks(batch.attention_mask.bool(), allowed, self._scaled_bias())
        if self._mask_arguments is None:
            return self._states(batch.ids, batch.token_types, mask, masks)
        self._mask_arguments.masks = masks
        try:
            return self._states(batch.ids, batch.token_types, mask)
        finally:
            self._mask_arguments.masks = None

    def _forward_packed(self, batch: PackedBatch, original_ids: Tensor) -> Tensor:
        if self._mask_arguments is not None:
            raise ValueError(f"batches must be padded: {why_padded(self.base)}")
        make_masks = self._training_masks if torch.is_grad_enabled() else self._scoring_masks
        masks, positions = make_masks(batch, original_ids), batch.positions()[None] + first_position(self.base)
        return self._states(batch.ids[None], batch.token_types[None], None, masks, position_ids=positions)

    def _states(
        self, ids: Tensor, token_types: Tensor, mask: Tensor | None, layer_masks: LayerMasks | None = None,
        **options: Any,
    ) -> Tensor:  # fmt: skip
        """Return the last layer's states; `layer_masks` replaces `mask`."""
        if layer_masks is not None:
            options["layer_masks"] = layer_masks
            if kinds := getattr(self.base.config, "layer_types", None):
                # Given no mask at all, ModernBERT would compute those of its windows itself, for the whole row.
                mask = dict.fromkeys(kinds)  # type: ignore[assignment]
        if has_token_types(self.base.config):
            options["token_type_ids"] = token_types
        states: Tensor = self.base(ids, attention_mask=mask, **options).last_hidden_state
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

    def bfloat16(self) -> Self:
        """Cast the weights to bfloat16, but not the frequencies of rotary embeddings: rounded, they move positions."""
        rotary = part(self.base, "rotary_emb")
        exact = {} if rotary is None else {name: buffer.clone() for name, buffer in rotary.named_buffers()}
        super().bfloat16()
        for name, buffer in exact.items():
            rotary.register_buffer(name, buffer, persistent=False)
        return self

    def compile_for_training(self) -> None:
        """Compile the layers for packed rows of all lengths."""
        compile_layers(self.base, TRAINING_GROUP_SHARE)

    def _scaled_bias(self) -> Tensor | None:
        if self.strm_bias is None:
            return None
        # Only the value is scaled: a gradient a hundred times larger would dominate the norm that clipping uses.
        return self.strm_bias + (BIAS_SCALE - 1) * self.strm_bias.detach()


def _hook_last_output(base: PreTrainedModel, hook: Callable[..., Any]) -> None:
    """Register a forward pre-hook on the module of the last layer that comes after attention, if it is known."""
    layers, path = layers_of(base), architecture(base.config).after_attention
    output = part(layers[-1], path) if layers and path else None
    if isinstance(output, nn.Module):
        output.register_forward_pre_hook(hook)


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
        layers = layers_of(base)
        if not layers:
            raise ConfigError(
                f"encoder.layers={config.layers} cannot be used: all layers of {type(base).__name__} are one module; "
                f"omit encoder.layers."
            )
        del layers[config.layers :]
        base.config.num_hidden_layers = config.layers
        if getattr(base.config, "layer_types", None):
            base.config.layer_types = base.config.layer_types[: config.layers]
    encoder = Encoder(base, words, strm)
    if torch.cuda.is_available() and (reason := why_padded(base)):
        _say_once(f"{key}={config.name}: batches are padded, which is slower than packed ones, since {reason}.")
    return encoder


_say_once = cache(say)


def _load(config: EncoderConfig, key: str) -> PreTrainedModel:
    path = locate(config.name, key=key)
    try:
        with quiet():
            shape = AutoConfig.from_pretrained(path)
            if not all(hasattr(shape, name) for name in architecture(shape).dropouts):
                raise ValueError(f"its model type {shape.model_type} is not supported")
            for name in architecture(shape).dropouts:
                setattr(shape, name, config.dropout)
            # A model that a training stage has saved (`models/saved.py`) has names of its own.
            names = {r"^encoder\.base\.": ""} if Path(path, "kind.json").is_file() else None
            base, report = AutoModel.from_pretrained(
                path, config=shape, output_loading_info=True, dtype=torch.float32, key_mapping=names
            )  # fmt: skip
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"{key}={config.name} cannot be loaded: {reason}; name a folder on disk or a model on the Hugging "
            f"Face hub that holds an encoder such as {SUPPORTED}."
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
