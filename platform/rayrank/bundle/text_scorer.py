"""Scoring texts with an exported model, with the same input ids as in training."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from rayrank.bundle.export import GOLDEN, Bundle
from rayrank.bundle.golden import Parity, parity
from rayrank.core.errors import ConfigError
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.scorer import Scorer
from rayrank.models.pair_texts import PairTexts
from rayrank.scores.window_scores import aggregate
from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ragged, Rows
from rayrank.text.template import Template
from rayrank.text.windows import PassageWindows
from rayrank.text.words import word_table

TOKENISED_AHEAD = 2_048
"""Pairs that are tokenised at a time while a GPU scores the pairs before them."""


def check_golden(bundle: Bundle) -> Parity:
    """Score a model's golden pairs from their texts and compare with their stored scores."""
    pairs = bundle.golden
    if not pairs:
        raise ConfigError(f"The model has no {GOLDEN}: export it again while its candidates are on storage.")
    types = [pair.query_type or "" for pair in pairs] if bundle.settings.input.query_type else None
    return parity(pairs, score(bundle, [pair.query for pair in pairs], [pair.passage for pair in pairs], types))


def score(
    bundle: Bundle, queries: Sequence[str], passages: Sequence[str], types: Sequence[str] | None = None
) -> NDArray[np.float32]:  # fmt: skip
    """Return the score of each (query, passage); `types` is required if the model was trained with query types."""
    size, encode = _num_tokenised_at_once(bundle, len(queries)), _piece_encoder(bundle)
    template, words = Template.of(bundle.tokenizer, bundle.settings.input), word_table(bundle.tokenizer)

    def tokenised(start: int) -> PairTexts:
        part = slice(start, start + size)
        kinds = None if types is None else types[part]
        texts = pair_texts(bundle, queries[part], passages[part], kinds, encode, template)
        if bundle.settings.input.long_passages == "cut":
            return texts
        windows = PassageWindows.of(texts.passages, bundle.settings.input, words)
        counts.append(np.diff(windows.first))
        return PairTexts(
            texts.prefixes.take(np.repeat(np.arange(len(texts.prefixes)), counts[-1])), windows.windows, template
        )

    counts: list[Rows] = []
    texts, waiting, done = tokenised(len(queries)), [], 0
    scorer = scorer_of(bundle, texts)
    with ThreadPoolExecutor(max_workers=1) as ahead:
        for block in ahead.map(tokenised, range(0, len(queries), size)):
            texts = texts.from_row(done) + block
            scorer = scorer.with_texts(texts)
            if size < len(queries) and isinstance(scorer, Scorer):
                # Pairs that do not fill a packed row are scored together with the next block.
                done = scorer.num_in_full_rows()
                waiting.append(scorer.begin(np.arange(done), np.arange(done)))
    rest = np.arange(done, len(texts.prefixes))
    last = scorer(rest, rest)
    scores = np.concatenate([*(scores() for scores in waiting), last])
    return aggregate(scores, np.concatenate(counts)) if counts else scores


def _num_tokenised_at_once(bundle: Bundle, count: int) -> int:
    on_gpu = bundle.int8 is None and next(bundle.model.parameters()).is_cuda
    # On a CPU all pairs are tokenised first: tokenising and scoring would compete for the same cores.
    return TOKENISED_AHEAD if on_gpu else max(1, count)


def scorer_of(bundle: Bundle, texts: PairTexts) -> Scorer | OnnxScorer:
    """Return a scorer for pairs of these texts: ONNX Runtime if the int8 graph is loaded, else torch."""
    return Scorer(bundle.model, texts) if bundle.int8 is None else OnnxScorer(bundle.int8, texts)


def pair_texts(
    exported: Bundle, queries: Sequence[str], passages: Sequence[str], types: Sequence[str] | None = None,
    encode: PieceEncoder | None = None, template: Template | None = None,
) -> PairTexts:  # fmt: skip
    """Return texts as the ids that pairs are made of."""
    template = template or Template.of(exported.tokenizer, exported.settings.input)
    encode = encode or _piece_encoder(exported)
    kinds = None if types is None else _ragged(encode, types)
    prefixes = template.prefixes(_ragged(encode, queries), kinds)
    return PairTexts(prefixes, _ragged(encode, passages), template)


def _piece_encoder(exported: Bundle) -> PieceEncoder:
    return PieceEncoder(exported.tokenizer.backend_tokenizer.to_str(), exported.settings.input.pieces_read())


def _ragged(encode: PieceEncoder, texts: Sequence[str]) -> Ragged:
    lists = encode(texts)
    return Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())
