"""Folders of tiny encoders with random weights, one of every kind, with tokenizers trained on a few sentences."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from torch import nn
from transformers import (
    AutoModelForMaskedLM,
    BertConfig,
    BertTokenizer,
    DebertaV2Config,
    DebertaV2Tokenizer,
    DistilBertConfig,
    DistilBertTokenizer,
    ElectraConfig,
    ModernBertConfig,
    MPNetConfig,
    MPNetTokenizer,
    PretrainedConfig,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaTokenizer,
    XLMRobertaConfig,
    XLMRobertaTokenizer,
)

from rayrank.core.config import EncoderConfig, InputConfig, StrmConfig
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import Encoder, load_encoder
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

TEXT = [
    "the river runs, the rivers ran; a runner ran to the riverside and back.",
    "where is the river? who runs the riverside runners club?",
    "a lighthouse keeper counts the light of forty lighthouses.",
    "what is the number of runners? forty runners ran back.",
]
LENGTH = 96
"""The longest input that the encoders read."""

QUERIES = ["where is the river", "who runs the riverside runners club", "what is the number of lighthouses"] * 2
PASSAGES = [
    "the river runs to the riverside; and back, forty rivers ran where runners count",
    "forty",
    "a lighthouse keeper counts the number",
    "back",
    "the light of forty lighthouses, and a keeper",
    "who counts rivers?",
]
ROWS = np.arange(len(QUERIES))
OFF = StrmConfig(form="off")
FORMS = {
    "off": OFF,
    "mask": StrmConfig(),
    "mask in layer 1": StrmConfig(first_layer=1),
    "bias": StrmConfig(form="bias"),
}

BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ROBERTA_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
MPNET_SPECIAL = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
DEBERTA_SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]

SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": LENGTH,
    "initializer_range": 0.3,
}
ROBERTA = {"max_position_embeddings": LENGTH + 2, "type_vocab_size": 1}
DEBERTA = {
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}


def _trained(model: Any, trainer: Any, pre_tokenizer: Any) -> dict[str, Any]:
    """Return the model section of the tokenizer.json of a trained tokenizer."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(TEXT * 10, trainer)
    return json.loads(tokenizer.to_str())["model"]


def _word_pieces(special: list[str]) -> dict[str, int]:
    # Not trained: WordPieceTrainer breaks ties differently each time, and a piece's id decides its random weights.
    letters = sorted(set("".join(TEXT)) - {" "})
    longer = "the river run light forty keep count back who ##ner ##house ##er ##side ##ight ##un".split()
    pieces = [*special, *letters, *(f"##{letter}" for letter in letters), *longer]
    return {piece: number for number, piece in enumerate(pieces)}


def _byte_pairs(special: list[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    found = _trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))
    return found["vocab"], [tuple(pair) for pair in found["merges"]]


def _unigrams(special: list[str]) -> list[tuple[str, float]]:
    trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=special, unk_token=special[3], show_progress=False)
    found = dict(_trained(models.Unigram(), trainer, pre_tokenizers.Metaspace())["vocab"])
    # Equally frequent pieces come in another order each time, and a piece's id decides its random weights.
    pieces = special + sorted(set(found) - set(special))
    return [(piece, round(found[piece], 3)) for piece in pieces]


def _roberta() -> PreTrainedTokenizerBase:
    vocabulary, merges = _byte_pairs(ROBERTA_SPECIAL)
    return RobertaTokenizer(vocab=vocabulary, merges=merges)


def _modernbert() -> PreTrainedTokenizerBase:
    vocabulary, merges = _byte_pairs(BERT_SPECIAL)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    )  # fmt: skip


class Kind(NamedTuple):
    """How the tiny encoder of a kind is made."""

    config: Callable[..., PretrainedConfig]
    settings: dict[str, Any]
    tokenizer: Callable[[], PreTrainedTokenizerBase]


KINDS = {
    "BERT": Kind(BertConfig, {}, lambda: BertTokenizer(vocab=_word_pieces(BERT_SPECIAL))),
    "RoBERTa": Kind(RobertaConfig, ROBERTA, _roberta),
    "XLM-R": Kind(XLMRobertaConfig, ROBERTA, lambda: XLMRobertaTokenizer(vocab=_unigrams(ROBERTA_SPECIAL))),
    "ELECTRA": Kind(ElectraConfig, {"embedding_size": 16}, lambda: BertTokenizer(vocab=_word_pieces(BERT_SPECIAL))),
    "MPNet": Kind(
        MPNetConfig,
        {"max_position_embeddings": LENGTH + 2},
        lambda: MPNetTokenizer(vocab=_word_pieces(MPNET_SPECIAL)),
    ),
    "DistilBERT": Kind(
        DistilBertConfig, {"hidden_dim": 64}, lambda: DistilBertTokenizer(vocab=_word_pieces(BERT_SPECIAL))
    ),
    "DeBERTa-v3": Kind(DebertaV2Config, DEBERTA, lambda: DebertaV2Tokenizer(vocab=_unigrams(DEBERTA_SPECIAL))),
    "ModernBERT": Kind(ModernBertConfig, {"local_attention": 8, "global_attn_every_n_layers": 2}, _modernbert),
}


class Saved(NamedTuple):
    """A folder with an encoder of a kind."""

    kind: str
    config: EncoderConfig
    tokenizer: PreTrainedTokenizerFast

    def encoder(self, strm: StrmConfig = OFF, layers: int | None = None) -> Encoder:
        config = self.config.model_copy(update={"layers": layers})
        found = load_encoder(config, word_table(self.tokenizer), strm).eval()
        if found.strm_bias is not None:
            nn.init.normal_(found.strm_bias, std=0.02)
        return found

    def reranker(self, strm: StrmConfig = OFF) -> Reranker:
        torch.manual_seed(1)
        model = Reranker(self.encoder(strm), 1).eval()
        nn.init.normal_(model.head.weight)
        return model

    def texts(self) -> PairTexts:
        template = Template.of(self.tokenizer, InputConfig(length=LENGTH, query_length=48, query_type=False))
        encode = PieceEncoder(self.tokenizer.backend_tokenizer.to_str(), LENGTH)
        queries, passages = (Ragged.of(encode(texts).to_pylist()) for texts in (QUERIES, PASSAGES))
        return PairTexts(template.prefixes(queries), passages, template)

    def batch(self) -> PaddedBatch:
        return self.texts().padded(ROWS, ROWS, torch.device("cpu"))


def save(kind: str, folder: Path) -> Saved:
    """Write a tiny encoder with its head for masked language modelling, and its tokenizer."""
    torch.manual_seed(0)
    config, settings, make_tokenizer = KINDS[kind]
    tokenizer = make_tokenizer()
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    model = AutoModelForMaskedLM.from_config(config(**SIZES | settings | ids, vocab_size=len(tokenizer)))
    # Biases are initialised to zero, with which a test would not notice a lost bias.
    for part in model.modules():
        if isinstance(part, nn.Linear | nn.LayerNorm) and part.bias is not None:
            nn.init.normal_(part.bias, std=0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return Saved(kind, EncoderConfig(name=str(folder), dropout=0), load_tokenizer(str(folder)))
