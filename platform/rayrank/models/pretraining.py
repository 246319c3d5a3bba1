"""The encoder with the two heads of BERT's pre-training: masked language modelling and next-sentence prediction."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForMaskedLM, BertConfig, BertForPreTraining, PretrainedConfig, PreTrainedModel
from transformers.models.bert.modeling_bert import BertPooler, BertPredictionHeadTransform

from rayrank.core.config import PipelineConfig
from rayrank.core.pretrained import locate
from rayrank.models.architectures import ARCHITECTURES, architecture, check_length, part
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.encoder import Encoder, load_encoder, quiet

IGNORED = -100
"""The label that losses ignore, torch's default `ignore_index`."""

DISTILBERT_EPS = 1e-12
"""The epsilon of DistilBERT's layer normalization, which its config does not contain."""

NEXT = 0
"""The index of the next-sentence class `B follows A`, as in BERT's checkpoints."""


class PretrainingModel(nn.Module):
    """Predicts masked pieces, and whether sentence B follows sentence A."""

    def __init__(self, encoder: Encoder) -> None:
        """Initialise both heads at random; `copy_heads` replaces them by those of a checkpoint."""
        super().__init__()
        self.encoder = encoder
        config, (num_pieces, width) = encoder.base.config, _embeddings(encoder).shape
        # ELECTRA's embeddings may be narrower than its layers.
        self.transform = BertPredictionHeadTransform(_head_config(config, width))  # type: ignore[no-untyped-call]
        self.transform.dense = nn.Linear(config.hidden_size, width)
        self.bias = nn.Parameter(torch.zeros(num_pieces))
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

    @torch.no_grad()
    def copy_heads(self, source: PreTrainedModel) -> None:
        """Copy the heads of a checkpoint, as far as it has them, except the decoder weights.

        Those are the encoder's word embeddings.
        """
        names = architecture(source.config).language_head
        for own, path in ((self.transform.dense, names.dense), (self.transform.LayerNorm, names.norm)):
            if (theirs := part(source, path)) is not None:
                # ModernBERT has no biases here, and the new ones are zero.
                own.load_state_dict(theirs.state_dict(), strict=False)
        if (bias := part(source, names.bias)) is not None:
            self.bias.copy_(bias)
        if (pooler := part(source.base_model, "pooler")) is not None:
            self.pooler.load_state_dict(pooler.state_dict())
        if (next_sentence := part(source, "cls.seq_relationship")) is not None:
            self.next_sentence.load_state_dict(next_sentence.state_dict())


def _head_config(config: PretrainedConfig, width: int) -> BertConfig:
    """Return the settings of the masked-language-modelling head in BERT's words."""
    names = architecture(config)
    eps = getattr(config, names.norm_eps, DISTILBERT_EPS)
    return BertConfig(hidden_size=width, hidden_act=getattr(config, names.activation), layer_norm_eps=eps)


def _embeddings(encoder: Encoder) -> Tensor:
    # Read from the encoder at each step: as a second parameter, of the head, these weights would be saved twice, and
    # loading could untie them.
    weights = encoder.base.get_input_embeddings().weight
    assert isinstance(weights, Tensor)
    return weights


def build(config: PipelineConfig, words: NDArray[np.int8] | None) -> PretrainingModel:
    """Return the model to pre-train: the checkpoint's encoder, with its heads, or with random ones if it has none."""
    encoder = load_encoder(config.encoder, words, config.strm)
    check_length(encoder.base, config.pretrain.length, "pretrain.length", config.encoder.name)
    model = PretrainingModel(encoder)
    kind = encoder.base.config.model_type
    if kind in ARCHITECTURES:
        # Only BERT's checkpoints can have a head for next-sentence prediction.
        of = BertForPreTraining if kind == "bert" else AutoModelForMaskedLM
        path = locate(config.encoder.name, key="encoder.name")
        with quiet():
            # One layer, since `encoder` has all of them already; heads that the checkpoint lacks are random.
            model.copy_heads(of.from_pretrained(path, num_hidden_layers=1))
    return model
