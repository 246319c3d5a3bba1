"""The re-ranker: a pre-trained encoder, STRM or plain attention, and one linear layer over [CLS]."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

from rayrank.config import EncoderConfig
from rayrank.errors import ConfigError
from rayrank.modeling.strm import padded_mask
from rayrank.pretrained import locate
from rayrank.text.pairs import Pairs

RELEVANT = 1
"""The class of the pointwise head whose logit speaks for the passage."""


class PaddedBatch(NamedTuple):
    """Inputs of one batch, padded to its longest."""

    ids: Tensor
    attention_mask: Tensor
    token_types: Tensor

    def to(self, device: torch.device) -> "PaddedBatch":
        return PaddedBatch(*(tensor.to(device, non_blocking=True) for tensor in self))


def pad(pairs: Pairs, pad_id: int) -> PaddedBatch:
    """Return pairs as rectangles, all rows at once."""
    lengths = pairs.lengths
    shape = (len(lengths), int(lengths.max()))
    present = np.arange(shape[1]) < lengths[:, None]
    ids = np.full(shape, pad_id, np.int64)
    token_types = np.zeros(shape, np.int64)
    ids[present], token_types[present] = pairs.ids, pairs.token_types()
    return PaddedBatch(torch.from_numpy(ids), torch.from_numpy(present.astype(np.int64)), torch.from_numpy(token_types))


class Reranker(nn.Module):
    """Scores pairs; two outputs are the pointwise classes, one is the listwise score."""

    words: Tensor | None

    def __init__(self, encoder: PreTrainedModel, num_outputs: int, words: NDArray[np.int8] | None) -> None:
        """Take the vocabulary's word table for STRM, or None for plain attention."""
        super().__init__()
        self.encoder = encoder
        self.dropout = nn.Dropout(encoder.config.hidden_dropout_prob)
        self.head = nn.Linear(encoder.config.hidden_size, num_outputs)
        nn.init.normal_(self.head.weight, std=encoder.config.initializer_range)
        nn.init.zeros_(self.head.bias)
        # Belongs to the tokenizer, not to the weights: it is rebuilt when a model is loaded.
        self.register_buffer("words", None if words is None else torch.from_numpy(words), persistent=False)

    def forward(self, batch: PaddedBatch) -> Tensor:
        """Return (pairs, outputs) float32 logits."""
        mask = batch.attention_mask
        if self.words is not None:
            mask = padded_mask(batch.ids, mask, self.words)
        states = self.encoder(batch.ids, attention_mask=mask, token_type_ids=batch.token_types).last_hidden_state
        logits: Tensor = self.head(self.dropout(states[:, 0]))
        return logits.float()


def relevance_score(logits: Tensor) -> Tensor:
    """Return one number a pair to sort by, whichever phase the model comes from."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    return logits[:, RELEVANT] - logits[:, 1 - RELEVANT]


def listwise_head(model: Reranker) -> None:
    """Turn a pointwise head into a listwise one that orders passages as before: the difference of the two classes."""
    old = model.head
    model.head = nn.Linear(old.in_features, 1, device=old.weight.device)
    with torch.no_grad():
        model.head.weight.copy_(old.weight[[RELEVANT]] - old.weight[[1 - RELEVANT]])
        model.head.bias.copy_(old.bias[[RELEVANT]] - old.bias[[1 - RELEVANT]])


def load_encoder(config: EncoderConfig) -> PreTrainedModel:
    """Return the pre-trained encoder, cut to its first layers where the config says so."""
    place = locate(config.name, key="encoder.name")
    try:
        encoder = AutoModel.from_pretrained(
            place, attn_implementation="sdpa", add_pooling_layer=False,
            hidden_dropout_prob=config.dropout, attention_probs_dropout_prob=config.dropout,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ConfigError(
            f"encoder.name={config.name} cannot be loaded: {reason}; name a folder on disk, or a model the hub serves."
        ) from None
    if config.layers is not None:
        if config.layers > encoder.config.num_hidden_layers:
            raise ConfigError(
                f"encoder.layers={config.layers} cannot be used: {config.name} has {encoder.config.num_hidden_layers}; "
                f"lower encoder.layers."
            )
        encoder.encoder.layer = encoder.encoder.layer[: config.layers]
        encoder.config.num_hidden_layers = config.layers
    return encoder  # type: ignore[no-any-return]
