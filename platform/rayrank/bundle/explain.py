"""Why a passage got its score: what the model read, which words attended to which, and what each word was worth."""

import copy
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from rayrank.bundle.export import Exported
from rayrank.bundle.predicted_types import types_for
from rayrank.core.config import StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.attention.layer_masks import LayerMasks
from rayrank.models.attention.per_layer import separate
from rayrank.models.attention.strm import standing, word_starts
from rayrank.models.batches import PaddedBatch, PairTexts
from rayrank.models.encoder import PAPER
from rayrank.models.inference.scorer import CPU_TOKENS, Scorer
from rayrank.models.reranker import Reranker, relevance_score
from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.words import word_table

CELLS = 300_000
"""Attention weights in one answer, about: two megabytes. Passages of more words show their first ones."""
FEWEST = 8
"""Words of a passage that are shown however many layers, heads and query words there are."""
SECONDS, PAIRS = 5.0, 16
"""How long words are left out one by one, each of which is a pair to score, and how many of them between two looks at
the clock; what a large model on a CPU does not manage stays unknown."""

FIRST = np.zeros(1, np.int64)
"""The row of the only pair."""

_WATCHED = "rayrank_watched"
"""The name under which transformers knows the attention that shows its weights."""


class Piece(NamedTuple):
    """A word piece of the input, and its characters within the type, the query or the passage; signs have none."""

    id: int
    text: str
    segment: str
    start: int | None = None
    end: int | None = None


class Word(NamedTuple):
    """Pieces that STRM puts together again, by their places in the input."""

    text: str
    segment: str
    pieces: list[int]
    standing: list[int]
    """The pieces among them that other words see."""


def explain(exported: Exported, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
    """Return plain values for JSON; words are numbered as `words` lists them, and the other entries name the numbers.

    The type is predicted if the model reads one and none is given.
    """
    kinds = types_for(exported, [query], [query_type])
    kind = kinds[0] if kinds else None
    pieces, texts, cut = _read(exported, query, passage, kind)
    twin = twin_of(exported.model)
    table, strm = twin.encoder.words, twin.encoder.strm
    if table is None:
        table, strm = torch.from_numpy(word_table(exported.tokenizer)), PAPER
    table = table.to(next(twin.parameters()).device)
    batch = texts.padded(FIRST, FIRST, table.device)
    starts = word_starts(batch.ids[0], table)
    words = list(_words(pieces, starts, standing(starts, strm.representative), [kind or "", query, passage]))
    score, removed = _removed(twin, texts, words)
    return {
        "query_type": kind,
        "score": score,
        "cut": cut,
        "strm": exported.settings.strm.form,
        "pieces": [piece._asdict() for piece in pieces],
        "words": [word._asdict() for word in words],
        "matches": _matches(words),
        "removed": removed,
        "attention": _attention(twin, batch, words, strm, table),
    }


def twin_of(model: Reranker) -> Reranker:
    """Return a re-ranker around the same weights, whose modules may be changed while others score with the first."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return copy.deepcopy(model, shared).eval()


def _read(exported: Exported, query: str, passage: str, kind: str | None) -> tuple[list[Piece], PairTexts, bool]:
    """Return the input piece by piece, the same input as a pair of texts, and whether its passage is cut."""
    tokenizer, template = exported.tokenizer, Template.of(exported.tokenizer, exported.settings.input)
    # A tokenizer of its own: the model's may be in use in another thread.
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), template.length)
    cls = Piece(tokenizer.cls_token_id, tokenizer.cls_token, "special")
    known, rows = [cls, Piece(tokenizer.sep_token_id, tokenizer.sep_token, "special")], []
    for segment, text in (("type", kind), ("query", query), ("document", passage)):
        found = encode.with_characters(text or "")
        rows.append(Ragged.of([range(len(known), len(known) + len(found.ids))]))
        found_pieces = zip(found.ids, found.tokens, found.offsets, strict=True)
        known += [Piece(piece_id, token, segment, *span) for piece_id, token, span in found_pieces]
    # The template puts numbers of pieces together as it does ids, so that each keeps its text and its segment.
    types, queries, documents = rows
    numbered = replace(template, cls_id=0, sep_id=1)
    prefixes = numbered.prefixes(queries, types if template.has_type else None)
    pieces = [known[number] for number in numbered.pairs(prefixes, documents).ids[0]]
    ids, before = [piece.id for piece in pieces], len(prefixes[0])
    if len(ids) == before + 1:
        raise ConfigError("The model has nothing of the passage to read: send one with some text.")
    texts = PairTexts(Ragged.of([ids[:before]]), Ragged.of([ids[before:-1]]), template)
    return pieces, texts, bool(template.is_cut(prefixes.lengths(), documents.lengths())[0])


def _words(pieces: list[Piece], starts: Tensor, stands: Tensor, texts: list[str]) -> Iterator[Word]:
    sources = dict(zip(("type", "query", "document"), texts, strict=True))
    bounds = [*starts.nonzero()[:, 0].tolist(), len(pieces)]
    for start, stop in pairwise(bounds):
        first, last, places = pieces[start], pieces[stop - 1], range(start, stop)
        text = first.text if first.start is None else sources[first.segment][first.start : last.end].strip()
        yield Word(text, first.segment, list(places), [place for place in places if stands[place]])


def _matches(words: list[Word]) -> list[list[int]]:
    """Return the words of query and passage, two and two, that are the same but for their case."""
    query, document = _segment(words, "query"), _segment(words, "document")
    meant = [word.text.casefold() if any(map(str.isalnum, word.text)) else None for word in words]
    return [[one, other] for one in query for other in document if meant[one] and meant[one] == meant[other]]


def _segment(words: list[Word], segment: str) -> list[int]:
    return [number for number, word in enumerate(words) if word.segment == segment]


def _removed(model: Reranker, texts: PairTexts, words: list[Word]) -> tuple[float, list[dict[str, Any]]]:
    """Return the score, and how much it changes when the model reads all but one word of what it has read."""
    start, passage = texts.prefixes[0], texts.passages[0]
    query, document = _segment(words, "query"), _segment(words, "document")
    starts = [start, *(np.delete(start, words[number].pieces) for number in query)]
    places = (np.array(words[number].pieces) - len(start) for number in document)
    passages = [passage, *(np.delete(passage, of_word) for of_word in places)]
    fewer = PairTexts(Ragged.of(starts), Ragged.of(passages), texts.template)
    query_rows = np.r_[np.arange(len(starts)), np.zeros(len(document), np.int64)]
    passage_rows = np.r_[np.zeros(len(query), np.int64), np.arange(len(passages))]
    # Not the graph of eight bits: how it rounds depends on what else is in a batch, and the changes are small.
    scorer, scores, end = Scorer(model, fewer, CPU_TOKENS), [], time.monotonic() + SECONDS
    for first in range(0, len(query_rows), PAIRS):
        some = slice(first, first + PAIRS)
        scores += scorer(query_rows[some], passage_rows[some]).tolist()
        if time.monotonic() > end:
            break
    score, *others = scores
    changes = zip([*query, *document], others, strict=False)
    return score, [{"word": number, "change": round(other - score, 6)} for number, other in changes]


def _attention(
    model: Reranker, batch: PaddedBatch, words: list[Word], strm: StrmConfig, table: Tensor
) -> dict[str, Any]:
    """Return how much each query word attends to each word of the passage, in every layer and head, in two forms.

    A model without STRM is shown with the paper's mask too, and one with STRM also with plain attention.
    """
    config = model.encoder.base.config
    query, document = _segment(words, "query"), _segment(words, "document")
    matrices = 2 * config.num_hidden_layers * config.num_attention_heads
    shown = document[: max(FEWEST, CELLS // (matrices * max(1, len(query))))]
    # A word attends as its pieces do on average, and gets what all of them get.
    rows = torch.zeros(len(query), batch.ids.shape[1], device=batch.ids.device)
    columns = torch.zeros(batch.ids.shape[1], len(shown), device=batch.ids.device)
    for row, number in enumerate(query):
        rows[row, words[number].pieces] = 1 / len(words[number].pieces)
    for column, number in enumerate(shown):
        columns[words[number].pieces, column] = 1
    found: dict[str, Any] = {"query_words": query, "document_words": shown, "left_out": len(document) - len(shown)}
    model.encoder.strm = strm
    for name, seen in (("with_strm", table), ("without_strm", None)):
        model.encoder.words = seen
        weights, score = watched(model, batch, rows, columns)
        # Rounded as doubles, which JSON writes with four digits.
        found[name] = {"score": score, "weights": weights.double().cpu().numpy().round(4).tolist()}
    return found


@torch.inference_mode()
def watched(model: Reranker, batch: PaddedBatch, rows: Tensor, columns: Tensor) -> tuple[Tensor, float]:
    """Return (layers, heads, rows, columns) attention of a batch of one, its pieces put together, and its score.

    The model is a twin: its attention is exchanged for one that shows its weights.
    """
    base = model.encoder.base
    if not base._supports_attention_backend:
        raise ConfigError(
            f"Attention cannot be shown: {type(base).__name__} does not let it be replaced; "
            f"take an encoder such as BERT, RoBERTa or ELECTRA."
        )
    layers: list[Tensor] = []
    base.set_attn_implementation(_WATCHED)
    # Put together at once: all weights of a large encoder would take hundreds of megabytes.
    base.config.watch = lambda weights: layers.append(rows @ weights[0] @ columns)
    score = relevance_score(model(batch)).item()
    return torch.stack(layers), score


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    layer_masks: LayerMasks | None = None, scaling: float | None = None, **options: Any,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Attend as SDPA does, step by step, and show the weights."""
    query, key, value = separate(module, query, key, value)
    if layer_masks is not None:
        attention_mask = layer_masks.of(module.place, query.dtype)  # type: ignore[arg-type]
    logits = query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        attention_mask = torch.where(attention_mask, 0.0, -torch.inf)
    weights = (logits.float() if attention_mask is None else logits.float() + attention_mask).softmax(-1)
    module.config.watch(weights)  # type: ignore[operator, union-attr]
    return (weights.to(value.dtype) @ value).transpose(1, 2).contiguous(), weights


AttentionInterface.register(_WATCHED, _attend)
AttentionMaskInterface.register(_WATCHED, sdpa_mask)
