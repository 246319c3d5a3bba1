"""The encoder with the two heads of BERT's pre-training: masked language modelling and next-sentence prediction."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertForPreTraining
from transformers.models.bert.modeling_bert import BertPooler, BertPredictionHeadTransform

from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.core.pretrained import locate
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import Encoder, check_length, load_encoder, quiet

IGNORED = -100
"""The label that losses ignore, torch's default `ignore_index`."""

NEXT = 0
"""The index of the next-sentence class `B follows A`, as in BERT's checkpoints."""


class PretrainingModel(nn.Module):
    """Predicts masked pieces, and whether sentence B follows sentence A."""

    def __init__(self, encoder: Encoder) -> None:
        """Initialise both heads at random; `copy_heads` replaces them by those of a checkpoint."""
        super().__init__()
        self.encoder = encoder
        config = encoder.base.config
        self.transform = BertPredictionHeadTransform(config)  # type: ignore[no-untyped-call]
        self.bias = nn.Parameter(torch.zeros(len(_embeddings(self.encoder))))
        self.pooler = BertPooler(config)  # type: ignore[no-untyped-call]
        self.next_sentence = nn.Linear(config.hidden_size, 2)
        for layer in (self.transform.dense, self.pooler.dense, self.next_sentence):
            nn.init.normal_(layer.weight, std=config.initializer_range)
            nn.init.zeros_(layer.bias)

    def description(self) -> dict[str, Any]:
        """Return how the model is saved, see `rayrank.models.saved`."""
        return {"kind": "pretraining"}

    def forward(self, batch: PaddedBatch | PackedBatch, masked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return the (masked, vocabulary) logits of masked positions and the (batch, 2) next-sentence logits.

        `masked` holds indices into the flattened batch, and `labels` the original ids at these positions. STRM derives
        the words from the original ids, so a masked piece stays a piece of its word.
        """
        ids = batch.ids.flatten()
        # `masked` is padded with position 0, [CLS], whose label is IGNORED and which is never masked.
        original = ids.scatter(0, masked, torch.where(labels == IGNORED, ids[masked], labels)).view_as(batch.ids)
        states = self.encoder(batch, original).flatten(0, 1)
        chosen = self.transform(states.index_select(0, masked))
        cls_states = states.index_select(0, batch.first_positions()[: batch.num_inputs])
        pairs = self.next_sentence(self.pooler(cls_states[:, None]))
        return functional.linear(chosen, _embeddings(self.encoder), self.bias), pairs

    def copy_heads(self, source: BertForPreTraining) -> None:
        """Copy the heads of a checkpoint, except the decoder weights, which are the encoder's word embeddings."""
        predictions = source.cls.predictions
        self.transform.load_state_dict(predictions.transform.state_dict())
        if source.bert.pooler is not None:
            self.pooler.load_state_dict(source.bert.pooler.state_dict())
        self.next_sentence.load_state_dict(source.cls.seq_relationship.state_dict())
        with torch.no_grad():
            self.bias.copy_(predictions.bias)


def _embeddings(encoder: Encoder) -> Tensor:
    # Read from the encoder at each step: as a second parameter, of the head, these weights would be saved twice, and
    # loading could untie them.
    weights = encoder.base.get_input_embeddings().weight
    assert isinstance(weights, Tensor)
    return weights


def build(config: PipelineConfig, words: NDArray[np.int8] | None) -> PretrainingModel:
    """Return the model to pre-train: the checkpoint's encoder, with its heads, or with random ones if it has none."""
    encoder = load_encoder(config.encoder, words, config.strm)
    _check(encoder, config)
    model = PretrainingModel(encoder)
    if encoder.base.config.model_type == "bert":
        with quiet():
            # Without layers, which `encoder` already has; heads that the checkpoint lacks are initialised at random.
            source = BertForPreTraining.from_pretrained(
                locate(config.encoder.name, key="encoder.name"), num_hidden_layers=0
            )
        model.copy_heads(source)
    return model


def _check(encoder: Encoder, config: PipelineConfig) -> None:
    settings = encoder.base.config
    if _embeddings(encoder).shape[1] != settings.hidden_size or not hasattr(settings, "hidden_act"):
        raise ConfigError(
            f"encoder.name={config.encoder.name} cannot be pre-trained: its architecture is not like BERT's (word "
            f"embeddings as wide as its layers); choose another encoder, or set pretrain.enabled=false."
        )
    check_length(encoder.base, config.pretrain.length, "pretrain.length", config.encoder.name)
