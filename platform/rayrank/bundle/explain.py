"""Explaining a passage's score: the input, the attention between words, and the score change without each word."""

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from rayrank.bundle.export import Bundle
from rayrank.bundle.predicted_types import types_for
from rayrank.core.config import StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.architectures import SUPPORTED, architecture, attention_modules
from rayrank.models.attention.padded import PaddedMasks, additive
from rayrank.models.attention.per_layer import split_fused
from rayrank.models.attention.strm import representative_pieces, word_starts
from rayrank.models.batches import PaddedBatch
from rayrank.models.encoder import PAPER_STRM
from rayrank.models.inference.scorer import CPU_TOKENS, Scorer
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker, relevance_score
from rayrank.text.markers import Markers
from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

MAX_WEIGHTS = 300_000
"""Attention weights per explanation, about two megabytes; of longer passages only the first words are shown."""
MIN_PASSAGE_WORDS = 8
"""Words of a passage that are shown even if that exceeds MAX_WEIGHTS."""
REMOVAL_SECONDS = 5.0
"""Time limit for scoring the input without each of its words; words beyond it get no score change."""
PAIRS_PER_CHECK = 16
"""Inputs that are scored between two checks of the time limit."""

MARKER = "marker"
"""The segment of markers, which belong to neither query nor passage."""

ONLY_ROW = np.zeros(1, np.int64)
"""The row index of the only pair."""

RECORDED_ATTENTION = "rayrank_recorded"
"""The name of the attention function that records its weights in transformers' registry."""


class Piece(NamedTuple):
    """A word piece of the input, and its character span in the type, query or passage; special tokens and markers have
    none."""

    id: int
    text: str
    segment: str
    start: int | None = None
    end: int | None = None


class Word(NamedTuple):
    """A word as STRM sees it."""

    text: str
    segment: str
    pieces: list[int]
    """The positions of its pieces in the input."""
    representatives: list[int]
    """The positions of the pieces that other words may attend to."""


def explain(bundle: Bundle, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
    """Return the explanation as JSON values; entries refer to words by their index in `words`.

    A missing query type is predicted if the model's input has one.
    """
    kinds = types_for(bundle, [query], [query_type])
    kind = kinds[0] if kinds else None
    pieces, texts, cut = _read(bundle, query, passage, kind)
    model = copy_sharing_weights(bundle.model)
    table, strm = model.encoder.words, model.encoder.strm
    if table is None:
        table, strm = torch.from_numpy(word_table(bundle.tokenizer)), PAPER_STRM
    table = model.encoder.all_words(table.to(next(model.parameters()).device))
    batch = texts.padded(ONLY_ROW, ONLY_ROW, table.device)
    pieces = _with_markers(pieces, batch.ids[0].tolist(), texts.template.markers)
    starts = word_starts(batch.ids[0], table)
    is_visible = representative_pieces(starts, strm.representative)
    words = list(_words(pieces, starts, is_visible, [kind or "", query, passage]))
    score, removed = _score_without_each(model, texts, words, pieces)
    return {
        "query_type": kind,
        "score": score,
        "cut": cut,
        "strm": bundle.settings.strm.form,
        "pieces": [piece._asdict() for piece in pieces],
        "words": [word._asdict() for word in words],
        "matches": _matches(words),
        "removed": removed,
        "attention": _attention(model, batch, words, strm, table),
    }


def copy_sharing_weights(model: Reranker) -> Reranker:
    """Return a copy with its own modules but the same weights; changing the modules does not affect the original."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return copy.deepcopy(model, shared).eval()


def _read(bundle: Bundle, query: str, passage: str, kind: str | None) -> tuple[list[Piece], PairTexts, bool]:
    """Return the input piece by piece, the same input as a pair of texts, and whether its passage is cut."""
    tokenizer, template = bundle.tokenizer, Template.of(bundle.tokenizer, bundle.settings.input)
    # A separate tokenizer: the model's may be in use in another thread.
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), template.length)
    cls = Piece(tokenizer.cls_token_id, tokenizer.cls_token, "special")
    known, rows = [cls, Piece(tokenizer.sep_token_id, tokenizer.sep_token, "special")], []
    for segment, text in (("type", kind), ("query", query), ("document", passage)):
        found = encode.with_offsets(text or "")
        rows.append(Ragged.of([range(len(known), len(known) + len(found.ids))]))
        found_pieces = zip(found.ids, found.tokens, found.offsets, strict=True)
        known += [Piece(piece_id, token, segment, *span) for piece_id, token, span in found_pieces]
    # The template assembles indices into `known` in place of ids, so that each piece keeps its text and segment.
    types, queries, documents = rows
    numbered = replace(template, cls_id=0, sep_id=1)
    prefixes = numbered.prefixes(queries, types if template.has_type else None)
    pieces = [known[number] for number in numbered.pairs(prefixes, documents).ids[0]]
    ids, before = [piece.id for piece in pieces], len(prefixes[0])
    if len(ids) == before + 1:
        raise ConfigError("The passage has no word pieces in the model's input: send a passage with text.")
    whole = [known[number].id for number in documents[0]]
    texts = PairTexts(Ragged.of([ids[:before]]), Ragged.of([whole]), template)
    return pieces, texts, bool(texts.is_truncated(ONLY_ROW, ONLY_ROW)[0])


def _with_markers(pieces: list[Piece], ids: list[int], markers: Markers | None) -> list[Piece]:
    """Return the pieces of an input in the order of its ids, markers included; the input may leave out the end."""
    if markers is None:
        return pieces
    unmarked = iter(pieces)
    found = [
        Piece(number, markers.name(number), MARKER) if number >= markers.first_id else next(unmarked)
        for number in ids[:-1]
    ]
    return [*found, pieces[-1]]


def _words(pieces: list[Piece], starts: Tensor, is_visible: Tensor, texts: list[str]) -> Iterator[Word]:
    sources = dict(zip(("type", "query", "document"), texts, strict=True))
    bounds = [*starts.nonzero()[:, 0].tolist(), len(pieces)]
    for start, stop in pairwise(bounds):
        first, last, positions = pieces[start], pieces[stop - 1], range(start, stop)
        text = first.text if first.start is None else sources[first.segment][first.start : last.end].strip()
        visible = [position for position in positions if is_visible[position]]
        yield Word(text, first.segment, list(positions), visible)


def _matches(words: list[Word]) -> list[list[int]]:
    """Return the pairs of a query word and a passage word that are equal up to case."""
    query, document = _segment(words, "query"), _segment(words, "document")
    folded = [word.text.casefold() if any(map(str.isalnum, word.text)) else None for word in words]
    return [[one, other] for one in query for other in document if folded[one] and folded[one] == folded[other]]


def _segment(words: list[Word], segment: str) -> list[int]:
    return [number for number, word in enumerate(words) if word.segment == segment]


def _score_without_each(
    model: Reranker, texts: PairTexts, words: list[Word], pieces: list[Piece]
) -> tuple[float, list[dict[str, Any]]]:
    """Return the score, and its change when one word of the query or passage is removed from the input."""
    start, passage = texts.prefixes[0], texts.passages[0]
    query, document = _segment(words, "query"), _segment(words, "document")
    # Texts have no markers: they are marked anew without the word.
    unmarked = np.cumsum([piece.segment != MARKER for piece in pieces]) - 1
    starts = [start, *(np.delete(start, unmarked[words[number].pieces]) for number in query)]
    positions = (unmarked[words[number].pieces] - len(start) for number in document)
    # What was cut off does not move up into the place of a removed word.
    kept = passage[: unmarked[-1] - len(start)]
    passages = [passage, *(np.delete(kept, of_word) for of_word in positions)]
    shortened = PairTexts(Ragged.of(starts), Ragged.of(passages), texts.template)
    query_rows = np.r_[np.arange(len(starts)), np.zeros(len(document), np.int64)]
    passage_rows = np.r_[np.zeros(len(query), np.int64), np.arange(len(passages))]
    # Not the int8 graph: its rounding, which depends on the rest of the batch, may exceed the change of one word.
    scorer, scores, end = Scorer(model, shortened, CPU_TOKENS), [], time.monotonic() + REMOVAL_SECONDS
    for first in range(0, len(query_rows), PAIRS_PER_CHECK):
        some = slice(first, first + PAIRS_PER_CHECK)
        scores += scorer(query_rows[some], passage_rows[some]).tolist()
        if time.monotonic() > end:
            break
    score, *others = scores
    changes = zip([*query, *document], others, strict=False)
    return score, [{"word": number, "change": round(other - score, 6)} for number, other in changes]


def _attention(
    model: Reranker, batch: PaddedBatch, words: list[Word], strm: StrmConfig, table: Tensor
) -> dict[str, Any]:
    """Return how much each query word attends to each passage word in every layer and head, with and without STRM.

    For a model without STRM, the attention with STRM uses the paper's mask.
    """
    config = model.encoder.base.config
    query, document = _segment(words, "query"), _segment(words, "document")
    matrices = 2 * config.num_hidden_layers * config.num_attention_heads
    shown = document[: max(MIN_PASSAGE_WORDS, MAX_WEIGHTS // (matrices * max(1, len(query))))]
    # The attention from a word is the mean over its pieces, the attention to a word their sum.
    rows = torch.zeros(len(query), batch.ids.shape[1], device=batch.ids.device)
    columns = torch.zeros(batch.ids.shape[1], len(shown), device=batch.ids.device)
    for row, number in enumerate(query):
        rows[row, words[number].pieces] = 1 / len(words[number].pieces)
    for column, number in enumerate(shown):
        columns[words[number].pieces, column] = 1
    found: dict[str, Any] = {"query_words": query, "document_words": shown, "left_out": len(document) - len(shown)}
    for name, strm_table in (("with_strm", table), ("without_strm", None)):
        model.encoder.use_strm(strm_table, strm)
        weights, score = attention_weights(model, batch, rows, columns)
        # Rounded in double precision: a rounded float32 has more than four digits in JSON.
        found[name] = {"score": score, "weights": weights.double().cpu().numpy().round(4).tolist()}
    return found


@torch.inference_mode()
def attention_weights(model: Reranker, batch: PaddedBatch, rows: Tensor, columns: Tensor) -> tuple[Tensor, float]:
    """Return `rows` @ weights @ `columns` of every layer and head for a batch of one pair, and the pair's score.

    The model's attention function is replaced, so pass a copy.
    """
    base = model.encoder.base
    layers: list[Tensor] = []
    hooks: list[RemovableHandle] = []

    def record(weights: Tensor) -> None:
        # Aggregated layer by layer: all weights of a large encoder would take hundreds of megabytes.
        layers.append(rows @ weights[0].float() @ columns)

    if base._supports_attention_backend:
        base.set_attn_implementation(RECORDED_ATTENTION)
        base.config.record_attention = record
    elif architecture(base.config).mask != "backend":
        base.config.output_attentions = True
        hooks = [module.register_forward_hook(lambda *call: record(call[-1][1])) for module in attention_modules(base)]
    else:
        raise ConfigError(
            f"Attention cannot be shown: the attention of {type(base).__name__} cannot be replaced; "
            f"use an encoder such as {SUPPORTED}."
        )
    score = relevance_score(model(batch)).item()
    for hook in hooks:
        hook.remove()
    return torch.stack(layers), score


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    layer_masks: PaddedMasks | None = None, scaling: float | None = None, **options: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attend as SDPA does, and record the attention weights."""
    query, key, value = split_fused(module, query, key, value)
    if layer_masks is not None:
        attention_mask = layer_masks.for_layer(module.layer_index, query.dtype)  # type: ignore[arg-type]
    logits = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    weights = (logits.float() if attention_mask is None else logits.float() + additive(attention_mask)).softmax(-1)
    module.config.record_attention(weights)  # type: ignore[operator, union-attr]
    return (weights.to(value.dtype) @ value).transpose(1, 2).contiguous(), weights


AttentionInterface.register(RECORDED_ATTENTION, _attend)
AttentionMaskInterface.register(RECORDED_ATTENTION, sdpa_mask)
