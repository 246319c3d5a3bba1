"""A re-ranker's weights as those of transformers' BertForSequenceClassification, and back.

That class applies a pooler (a linear layer and tanh) to the [CLS] state before its classifier; a `Reranker` does not.
As tanh(x) is nearly x for small x, the exported pooler multiplies the state by a small power of two, and the classifier
divides by it.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rayrank.core.config import InputConfig
from rayrank.models.reranker import Reranker
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

POOLER_SCALE = 2.0**-13
"""A power of two, so scaling is exact. At this scale tanh changes a state of 10 by less than a millionth of its value,
and in half precision a state of 1 keeps all its bits."""


def is_portable(model: Reranker, tokenizer: "PreTrainedTokenizerFast") -> bool:
    """Return whether other libraries compute the same scores: a BERT with plain attention and the template's pairs."""
    if model.encoder.words is not None or model.encoder.base.config.model_type != "bert":
        return False
    theirs, template = tokenizer("a", "b"), Template.of(tokenizer, InputConfig(query_type=False))
    query, passage = (Ragged.of([tokenizer(text, add_special_tokens=False).input_ids]) for text in ("a", "b"))
    ours = template.pairs(template.prefixes(query), passage)
    same_types = theirs.get("token_type_ids") == ours.token_types().tolist()
    return bool(theirs.input_ids == ours.ids[0].tolist() and same_types)


def to_sequence_classification(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a re-ranker's weights as those of BertForSequenceClassification."""
    base = {
        name.replace("encoder.base.", "bert.", 1): tensor
        for name, tensor in weights.items()
        if name.startswith("encoder.")
    }
    hidden = weights["head.weight"].shape[1]
    return {
        **base,
        "bert.pooler.dense.weight": torch.eye(hidden) * POOLER_SCALE,
        "bert.pooler.dense.bias": torch.zeros(hidden),
        "classifier.weight": weights["head.weight"] / POOLER_SCALE,
        "classifier.bias": weights["head.bias"],
    }


def from_sequence_classification(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the re-ranker's weights bit for bit; weights in the re-ranker's own format are returned unchanged."""
    if "classifier.weight" not in weights:
        return weights
    base = {
        name.replace("bert.", "encoder.base.", 1): tensor
        for name, tensor in weights.items()
        if name.startswith("bert.") and not name.startswith("bert.pooler.")
    }
    head = weights["classifier.weight"] * POOLER_SCALE
    return {**base, "head.weight": head, "head.bias": weights["classifier.bias"]}
