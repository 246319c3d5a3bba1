"""The encoder with the two heads of BERT's pre-training: masked pieces, and whether B follows A."""

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
"""The label of positions that the masked-word loss ignores, as torch's cross entropy has it."""

NEXT = 0
"""The class of the next-sentence head that says B follows A, as in BERT's checkpoints."""


class PretrainingModel(nn.Module):
    """Guesses masked pieces and next sentences."""

    def __init__(self, encoder: Encoder) -> None:
        """Start with fresh heads; `copy_heads` takes over those of a checkpoint."""
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

    def forward(self, batch: PaddedBatch | PackedBatch, masked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return (masked, vocabulary) logits of the positions in question and (batch, 2) logits of the pairs.

        `masked` counts positions through the batch, row after row: only those are worth a whole vocabulary. `labels`
        is what was there, by which alone words are told: a masked piece stays a piece of its word.
        """
        ids = batch.ids.flatten()
        # What fills the masked positions up is the first one, which has no label and is never masked.
        spelled = ids.scatter(0, masked, torch.where(labels == IGNORED, ids[masked], labels)).view_as(batch.ids)
        states = self.encoder(batch, spelled).flatten(0, 1)
        chosen = self.transform(states.index_select(0, masked))
        firsts = states.index_select(0, batch.firsts()[: batch.num_inputs])
        pairs = self.next_sentence(self.pooler(firsts[:, None]))
        return functional.linear(chosen, _embeddings(self.encoder), self.bias), pairs

    def copy_heads(self, source: BertForPreTraining) -> None:
        """Take over heads; the decoder is not among them, it is the encoder's own word embeddings."""
        predictions = source.cls.predictions
        self.transform.load_state_dict(predictions.transform.state_dict())
        if source.bert.pooler is not None:
            self.pooler.load_state_dict(source.bert.pooler.state_dict())
        self.next_sentence.load_state_dict(source.cls.seq_relationship.state_dict())
        with torch.no_grad():
            self.bias.copy_(predictions.bias)


def _embeddings(encoder: Encoder) -> Tensor:
    # Borrowed at each step instead of held by the head as well: tied whatever is loaded, and saved once.
    weights = encoder.base.get_input_embeddings().weight
    assert isinstance(weights, Tensor)
    return weights


def build(config: PipelineConfig, words: NDArray[np.int8] | None) -> PretrainingModel:
    """Return the model to pre-train: the checkpoint's encoder, and its heads as far as it has them."""
    encoder = load_encoder(config.encoder, words, config.strm)
    _check(encoder, config)
    model = PretrainingModel(encoder)
    if encoder.base.config.model_type == "bert":
        with quiet():
            # Without layers, which the encoder has read already; heads that are not there come out fresh.
            source = BertForPreTraining.from_pretrained(
                locate(config.encoder.name, key="encoder.name"), num_hidden_layers=0
            )
        model.copy_heads(source)
    return model


def _check(encoder: Encoder, config: PipelineConfig) -> None:
    settings = encoder.base.config
    if _embeddings(encoder).shape[1] != settings.hidden_size or not hasattr(settings, "hidden_act"):
        raise ConfigError(
            f"encoder.name={config.encoder.name} cannot be pre-trained: it is not of BERT's kind (word embeddings as "
            f"wide as its layers); choose another encoder, or set pretrain.enabled=false."
        )
    check_length(encoder.base, config.pretrain.length, "pretrain.length", config.encoder.name)
