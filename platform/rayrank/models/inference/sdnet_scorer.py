"""Scoring pairs of rows with SDNet, in batches of passages with similar numbers of words."""

from collections.abc import Callable
from typing import cast

from torch import Tensor

from rayrank.models.inference.scorer import Scorer
from rayrank.models.inference.word_vectors import WordVectors
from rayrank.models.pair_texts import PairTexts
from rayrank.models.reranker import Reranker
from rayrank.models.sdnet import SDNet
from rayrank.text.ragged import Rows


class SdnetScorer(Scorer):
    """Scores pairs in batches of a budget of words."""

    def __init__(self, model: SDNet, texts: PairTexts, vectors: WordVectors) -> None:
        """Take vectors whose layers are mixed as the model mixes them."""
        # A scorer asks its model only for its encoder, and `_prepare` for the rest.
        super().__init__(cast(Reranker, model), texts)
        self._sdnet, self._vectors, self.packs = model, vectors, False

    def with_texts(self, texts: PairTexts) -> "SdnetScorer":
        """Not possible: the vectors are those of the texts it was made with."""
        raise NotImplementedError("a scorer of SDNet cannot change its texts")

    def _prepare(self, query_rows: Rows, passage_rows: Rows) -> tuple[Rows, Callable[[Rows], Tensor]]:
        def score(chosen: Rows) -> Tensor:
            pairs = self._vectors.pairs(self._sdnet, query_rows[chosen], passage_rows[chosen])
            return self._sdnet(pairs)  # type: ignore[no-any-return]

        return self._vectors.passage_lengths(passage_rows), score
