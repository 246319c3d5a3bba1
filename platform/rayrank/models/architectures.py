"""What the architectures of transformers call their parts, and what they can do: one row of a table for each.

An architecture that is not in the table is treated as BERT; parts that it does not have are then not found.
"""

from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from torch import nn
from transformers import PretrainedConfig, PreTrainedModel

from rayrank.core.errors import ConfigError

SUPPORTED = "BERT, RoBERTa, XLM-RoBERTa, ELECTRA, MPNet, DistilBERT, DeBERTa-v3 or ModernBERT"
"""The encoders that error messages propose."""

MIN_HEAD_SIZE = 16
"""The smallest attention heads that the Triton kernel for packed batches supports."""


class LanguageHead(NamedTuple):
    """The parts of the head for masked language modelling in transformers' model, as paths from the model."""

    dense: str = "cls.predictions.transform.dense"
    norm: str = "cls.predictions.transform.LayerNorm"
    bias: str = "cls.predictions.bias"


_BERT_HEAD = LanguageHead()


@dataclass(frozen=True)
class Architecture:
    """Where an architecture has the parts that are used here; paths begin at the base model or at a layer."""

    layers: str = "encoder.layer"
    attention: str = "attention.self"
    """The module of a layer that computes attention."""
    after_attention: str | None = "attention.output"
    """The module of a layer from which on positions do not depend on each other; it gets all that the rest needs."""
    projections: tuple[str, ...] = ("query", "key", "value")
    """The linear layers for queries, keys and values, if there is one for each."""
    dropouts: tuple[str, ...] = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    """The settings of the config that `encoder.dropout` replaces, that of hidden states first."""
    activation: str = "hidden_act"
    norm_eps: str = "layer_norm_eps"
    language_head: LanguageHead = _BERT_HEAD
    mask: Literal["backend", "added", "boolean"] = "backend"
    """How attention gets its mask: from a replaceable attention function, as numbers that are added to the logits, or
    as a boolean mask. In the last two cases the mask is the second argument of the attention module."""
    why_padded: str = ""
    """Why batches cannot be packed, as the end of a sentence."""


_ROBERTA = Architecture(language_head=LanguageHead("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"))

ARCHITECTURES = {
    "bert": Architecture(),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "electra": Architecture(
        language_head=LanguageHead(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
        )
    ),
    "mpnet": Architecture(
        attention="attention.attn",
        after_attention="attention.LayerNorm",
        language_head=_ROBERTA.language_head,
        mask="added",
        why_padded="MPNet's attention depends on the distance of two pieces, which the kernel for packed batches lacks",
    ),
    "distilbert": Architecture(
        layers="transformer.layer",
        attention="attention",
        after_attention="sa_layer_norm",
        projections=("q_lin", "k_lin", "v_lin"),
        dropouts=("dropout", "attention_dropout"),
        activation="activation",
        language_head=LanguageHead("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
    ),
    "deberta-v2": Architecture(
        mask="boolean",
        why_padded="DeBERTa's disentangled attention cannot be replaced by the kernel for packed batches",
    ),
    "modernbert": Architecture(
        layers="layers",
        attention="attn",
        after_attention=None,
        projections=(),
        dropouts=("mlp_dropout", "attention_dropout", "embedding_dropout"),
        activation="classifier_activation",
        norm_eps="norm_eps",
        language_head=LanguageHead("head.dense", "head.norm", "decoder.bias"),
    ),
}
"""The architectures by their model type in transformers."""


def architecture(config: PretrainedConfig) -> Architecture:
    """Return the row of the table for a model's config."""
    return ARCHITECTURES.get(config.model_type, ARCHITECTURES["bert"])


def part(module: Any, path: str) -> Any:
    """Return the part of a module at a dotted path, None if there is none."""
    try:
        return attrgetter(path)(module)
    except AttributeError:
        return None


def layers_of(base: PreTrainedModel) -> nn.ModuleList:
    """Return the transformer layers of an encoder; none if they are not separate modules, as in ALBERT."""
    found = part(base, architecture(base.config).layers)
    return found if isinstance(found, nn.ModuleList) else nn.ModuleList()


def attention_modules(base: PreTrainedModel) -> list[nn.Module]:
    """Return the attention module of each layer; none if layers do not have one each."""
    path = architecture(base.config).attention
    found = [part(layer, path) for layer in layers_of(base)]
    return found if all(isinstance(module, nn.Module) for module in found) else []


def window_of(config: PretrainedConfig, layer: int) -> int | None:
    """Return the largest distance at which a layer's positions attend to each other, None if it has no limit."""
    kinds = getattr(config, "layer_types", None)
    return int(config.sliding_window) if kinds and kinds[layer] == "sliding_attention" else None


def hidden_dropout(config: PretrainedConfig) -> float:
    """Return the dropout of hidden states."""
    return float(getattr(config, architecture(config).dropouts[0]))


def has_token_types(config: PretrainedConfig) -> bool:
    """Return whether an encoder distinguishes the token types of query and passage."""
    return (getattr(config, "type_vocab_size", 0) or 0) > 1


def why_padded(base: PreTrainedModel) -> str:
    """Return why an encoder's batches cannot be packed, as the end of a sentence; empty if they can."""
    if reason := architecture(base.config).why_padded:
        return reason
    if not takes_layer_masks(base):
        return f"the layers of {type(base).__name__} cannot have attention masks of their own"
    if not hasattr(part(base, "embeddings"), "position_embeddings") and not hasattr(base, "rotary_emb"):
        return f"{type(base).__name__} does not take the positions of pieces as an input"
    size = int(base.config.hidden_size // base.config.num_attention_heads)
    if size < MIN_HEAD_SIZE:
        return f"the encoder's heads have {size} dimensions, and the kernel for packed batches needs {MIN_HEAD_SIZE}"
    return ""


def takes_layer_masks(base: PreTrainedModel) -> bool:
    """Return whether each layer of an encoder can have an attention mask of its own."""
    is_replaceable = architecture(base.config).mask != "backend" or base._supports_attention_backend
    return is_replaceable and len(attention_modules(base)) == base.config.num_hidden_layers


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
