"""Vectors of texts by a sentence encoder, in the batches in which pairs are scored."""

from typing import cast

from torch import Tensor

from rayrank.models.inference.scorer import Scorer
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.models.sentence_encoder import SentenceEncoder


class Embedder(Scorer):
    """Returns for each (prefix row, text row) its vector instead of a score."""

    def __init__(self, model: SentenceEncoder | Reranker, texts: PairTexts, tokens: int | None = None) -> None:
        # A scorer only asks its model for an encoder and for a number, or here a row, per input.
        super().__init__(cast(Reranker, model), texts, tokens)

    @staticmethod
    def _output(read: Tensor) -> Tensor:
        return read
