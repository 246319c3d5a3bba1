"""Scoring: pairs of rows in, one float32 score each out, in the caller's order."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from rayrank.modeling.encoder import pad
from rayrank.modeling.reranker import Reranker, relevance_score
from rayrank.text.pairs import Ragged, Rows, assemble, input_lengths

POOL = 16_384
"""Pairs sorted by length together: enough for batches of nearly equal lengths, few enough to keep in memory."""

CPU_TOKENS, GPU_TOKENS = 16_384, 131_072
"""Padded tokens a batch: a GPU needs more at once before it is the arithmetic that takes the time."""


class Scorer:
    """Runs a re-ranker over pairs in batches of a token budget."""

    def __init__(self, model: Reranker, pad_id: int, sep_id: int, length: int, tokens: int | None = None) -> None:
        self._model = model
        self._pad_id, self._sep_id, self._length = pad_id, sep_id, length
        on_gpu = next(model.parameters()).is_cuda
        self._tokens = tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS)

    @torch.inference_mode()
    def __call__(self, starts: Ragged, passages: Ragged, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        """Return the score of each (query row, passage row)."""
        was_training = self._model.training
        self._model.eval()
        scores = np.empty(len(query_rows), np.float32)
        for start in range(0, len(query_rows), POOL):
            rows = slice(start, start + POOL)
            scores[rows] = self._pool(starts, passages, query_rows[rows], passage_rows[rows])
        self._model.train(was_training)
        return scores

    def _pool(self, starts: Ragged, passages: Ragged, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        device = next(self._model.parameters()).device
        lengths = input_lengths(starts, passages, query_rows, passage_rows, self._length)
        order = np.argsort(lengths, kind="stable")
        scores = np.empty(len(order), np.float32)
        pending = []
        for chosen in _budgets(order, lengths[order], self._tokens):
            pairs = assemble(starts, passages, query_rows[chosen], passage_rows[chosen], self._sep_id, self._length)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                logits = self._model(pad(pairs, self._pad_id).to(device))
            pending.append((chosen, relevance_score(logits)))
        # Read back once a pool: every .cpu() waits for the device.
        for chosen, values in pending:
            scores[chosen] = values.float().cpu().numpy()
        return scores


def _budgets(order: Rows, lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Yield runs of length-sorted pairs whose padded size stays within the budget, one pair at least."""
    start = 0
    while start < len(order):
        # Lengths ascend, so the last of a run is its longest.
        sizes = lengths[start:] * np.arange(1, len(order) - start + 1)
        count = max(1, int(np.searchsorted(sizes, tokens, side="right")))
        yield order[start : start + count]
        start += count
