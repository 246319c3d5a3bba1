"""A re-ranker as a sequence-classification model of transformers, and back: weights, settings and tokenizer.

Those models have a head of two layers: a linear layer with an activation, and a classifier. A `Reranker` has one linear
layer. The exported head computes its score all the same:

- tanh(x) is nearly x for small x: the first layer multiplies the [CLS] state by a small power of two, by which the
  classifier divides.
- relu(x) - relu(-x) is x, and so is gelu(x) - gelu(-x): the first layer computes the score and its negative, and the
  classifier subtracts them.
- ModernBERT normalizes the output of its first layer, which has no activation here. Two large constants determine the
  variance of that output, so normalization divides the score by a constant, by which the classifier multiplies.
"""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from tokenizers import Tokenizer, processors
from torch import Tensor
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES

from rayrank.core.config import InputConfig
from rayrank.models.architectures import has_token_types
from rayrank.models.reranker import Reranker
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

POOLER_SCALE = 2.0**-13
"""A power of two, so scaling is exact. At this scale tanh changes a state of 10 by less than a millionth of its value,
and in half precision a state of 1 keeps all its bits."""

LARGE = 2.0**13
"""The constants in ModernBERT's head: a score of 10 changes the variance that they determine by a millionth."""


class Head(NamedTuple):
    """The head of a model for sequence classification: its two layers, and how they compute the score."""

    first: str
    classifier: str
    way: Literal["scaled", "signed", "normalized"]
    """The three ways that the module's description lists."""
    separator: str = " [SEP] "
    """What stands between type and query where both are one text; SentencePiece and byte-level BPE count spaces."""


_ROBERTA = Head("classifier.dense", "classifier.out_proj", "scaled", "</s>")

HEADS = {
    "bert": Head("bert.pooler.dense", "classifier", "scaled"),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "mpnet": _ROBERTA,
    "electra": Head("classifier.dense", "classifier.out_proj", "signed"),
    "distilbert": Head("pre_classifier", "classifier", "signed"),
    "deberta-v2": Head("pooler.dense", "classifier", "signed", "[SEP]"),
    "modernbert": Head("head.dense", "classifier", "normalized", "[SEP]"),
}
"""The heads by model type."""

HEAD_SETTINGS: dict[str, dict[str, Any]] = {
    "modernbert": {"classifier_pooling": "cls", "classifier_bias": True, "classifier_activation": "linear"},
    "deberta-v2": {"pooler_hidden_act": "gelu"},
}
"""Settings of a config that its exported head needs."""


def is_portable(model: Reranker, tokenizer: "PreTrainedTokenizerFast", inputs: InputConfig) -> bool:
    """Return whether other libraries compute the same scores: a known encoder, plain attention and no markers."""
    if inputs.markers or model.encoder.words is not None or model.encoder.base.config.model_type not in HEADS:
        return False
    return _makes_inputs(model, pair_tokenizer(model, tokenizer))


def _makes_inputs(model: Reranker, tokenizer: "PreTrainedTokenizerFast") -> bool:
    """Return whether a tokenizer makes the inputs of a pair that the template makes."""
    theirs, template = tokenizer("a", "b"), Template.of(tokenizer, InputConfig(query_type=False))
    query, passage = (Ragged.of([tokenizer(text, add_special_tokens=False).input_ids]) for text in ("a", "b"))
    ours = template.pairs(template.prefixes(query), passage)
    types = ours.token_types().tolist() if has_token_types(model.encoder.base.config) else None
    return bool(theirs.input_ids == ours.ids[0].tolist() and theirs.get("token_type_ids") == types)


def pair_tokenizer(model: Reranker, tokenizer: "PreTrainedTokenizerFast") -> "PreTrainedTokenizerFast":
    """Return a tokenizer whose pairs are the template's: one separator between the texts, where RoBERTa's has two."""
    if _makes_inputs(model, tokenizer):
        return tokenizer
    from transformers import PreTrainedTokenizerFast

    backend, cls, sep = (
        Tokenizer.from_str(tokenizer.backend_tokenizer.to_str()),
        tokenizer.cls_token,
        tokenizer.sep_token,
    )
    backend.post_processor = processors.TemplateProcessing(
        single=[cls, "$A", sep],
        pair=[cls, "$A", sep, "$B:1", f"{sep}:1"],
        special_tokens=[(cls, tokenizer.cls_token_id), (sep, tokenizer.sep_token_id)],
    )
    types = ["token_type_ids"] if has_token_types(model.encoder.base.config) else []
    # Not of the tokenizer's own class, which would replace the post-processor when it is loaded.
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, model_input_names=["input_ids", *types, "attention_mask"],
        **tokenizer.special_tokens_map,
    )  # fmt: skip


def portable_config(model: Reranker) -> dict[str, Any]:
    """Return the entries of config.json with which other libraries open the model and compute its scores."""
    config = model.encoder.base.config
    # Without the last entry CrossEncoder applies a sigmoid to the score.
    return {
        "architectures": [MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES[config.model_type]],
        **HEAD_SETTINGS.get(config.model_type, {}),
        "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"},
    }


def to_sequence_classification(weights: dict[str, Tensor], model_type: str, prefix: str) -> dict[str, Tensor]:
    """Return a re-ranker's weights as those of a model for sequence classification.

    `prefix` is the name of the encoder in that model.
    """
    head, score = HEADS[model_type], weights["head.weight"]
    hidden = score.shape[1]
    base = {
        name.replace("encoder.base.", f"{prefix}.", 1): tensor
        for name, tensor in weights.items()
        if name.startswith("encoder.")
    }
    first, constants, classifier = torch.zeros(hidden, hidden), torch.zeros(hidden), torch.zeros(1, hidden)
    if head.way == "scaled":
        first, classifier = torch.eye(hidden) * POOLER_SCALE, score / POOLER_SCALE
    else:
        first[:2] = torch.cat([score, -score])
        classifier[0, :2] = torch.tensor([1.0, -1.0])
    if head.way == "normalized":
        constants[2:4] = torch.tensor([LARGE, -LARGE])
        # The constants' variance is 2 * LARGE**2 / hidden; score and negative score are subtracted, hence the half.
        classifier *= LARGE * (2 / hidden) ** 0.5 / 2
        base["head.norm.weight"] = torch.ones(hidden)
    return {
        **base,
        f"{head.first}.weight": first,
        f"{head.first}.bias": constants,
        f"{head.classifier}.weight": classifier,
        f"{head.classifier}.bias": weights["head.bias"],
    }


def from_sequence_classification(weights: dict[str, Tensor], model_type: str, prefix: str) -> dict[str, Tensor]:
    """Return the re-ranker's weights bit for bit; weights in the re-ranker's own format are returned unchanged."""
    if "head.bias" in weights and "head.weight" in weights:
        return weights
    head = HEADS[model_type]
    base = {
        name.replace(f"{prefix}.", "encoder.base.", 1): tensor
        for name, tensor in weights.items()
        if name.startswith(f"{prefix}.") and not name.startswith(head.first)
    }
    is_scaled = head.way == "scaled"
    score = weights[f"{head.classifier}.weight"] * POOLER_SCALE if is_scaled else weights[f"{head.first}.weight"][:1]
    return {**base, "head.weight": score, "head.bias": weights[f"{head.classifier}.bias"]}
