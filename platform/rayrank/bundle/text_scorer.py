"""Scores of texts by an exported model: what is tokenised, put together and scored is what training saw as ids."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from rayrank.bundle.export import GOLDEN, Exported
from rayrank.bundle.golden import Parity, parity
from rayrank.core.errors import ConfigError
from rayrank.models.batches import PairTexts
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.scorer import Scorer
from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template

TOKENISED_AHEAD = 2_048
"""Pairs whose texts become ids at a time while a GPU scores those before them."""


def check_golden(exported: Exported) -> Parity:
    """Score the golden pairs from their texts and compare with training; a folder without any is refused."""
    pairs = exported.golden
    if not pairs:
        raise ConfigError(f"The model has no {GOLDEN} to be checked with: export it again, with its candidates there.")
    types = [pair.query_type or "" for pair in pairs] if exported.settings.input.query_type else None
    return parity(pairs, score(exported, [pair.query for pair in pairs], [pair.passage for pair in pairs], types))


def score(
    exported: Exported, queries: Sequence[str], passages: Sequence[str], types: Sequence[str] | None = None
) -> NDArray[np.float32]:  # fmt: skip
    """Return the score of each query and its passage; `types` are needed if the model was trained with them."""
    size, encode = _tokenised_at_once(exported, len(queries)), _piece_encoder(exported)

    def tokenised(start: int) -> PairTexts:
        part = slice(start, start + size)
        kinds = None if types is None else types[part]
        return pair_texts(exported, queries[part], passages[part], kinds, encode)

    texts, waiting, done = tokenised(len(queries)), [], 0
    scorer = scorer_of(exported, texts)
    with ThreadPoolExecutor(max_workers=1) as ahead:
        for block in ahead.map(tokenised, range(0, len(queries), size)):
            texts = texts.from_row(done) + block
            scorer = scorer.over(texts)
            if size < len(queries) and isinstance(scorer, Scorer):
                done = scorer.num_whole()
                waiting.append(scorer.begin(np.arange(done), np.arange(done)))
    rest = np.arange(done, len(texts.prefixes))
    last = scorer(rest, rest)
    return np.concatenate([*(scores() for scores in waiting), last])


def _tokenised_at_once(exported: Exported, count: int) -> int:
    on_gpu = exported.int8 is None and next(exported.model.parameters()).is_cuda
    # A CPU would tokenise ahead at the expense of what it scores.
    return TOKENISED_AHEAD if on_gpu else max(1, count)


def scorer_of(exported: Exported, texts: PairTexts) -> Scorer | OnnxScorer:
    """Return what scores pairs of these texts with the backend that the folder was opened for."""
    return Scorer(exported.model, texts) if exported.int8 is None else OnnxScorer(exported.int8, texts)


def pair_texts(
    exported: Exported, queries: Sequence[str], passages: Sequence[str], types: Sequence[str] | None = None,
    encode: PieceEncoder | None = None,
) -> PairTexts:  # fmt: skip
    """Return texts as the ids that pairs are made of."""
    template, encode = Template.of(exported.tokenizer, exported.settings.input), encode or _piece_encoder(exported)
    kinds = None if types is None else _ragged(encode, types)
    prefixes = template.prefixes(_ragged(encode, queries), kinds)
    return PairTexts(prefixes, _ragged(encode, passages), template)


def _piece_encoder(exported: Exported) -> PieceEncoder:
    return PieceEncoder(exported.tokenizer.backend_tokenizer.to_str(), exported.settings.input.length)


def _ragged(encode: PieceEncoder, texts: Sequence[str]) -> Ragged:
    lists = encode(texts)
    return Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())
