"""Scoring pairs of rows with a re-ranker: one float32 score per pair, in the caller's order."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.models.attention.packed_scoring import QUERY_BLOCK
from rayrank.models.batches import PackedBatch, PaddedBatch
from rayrank.models.pair_texts import PairInputs, PairTexts
from rayrank.models.reranker import Reranker, relevance_score
from rayrank.text.ragged import Rows

SORT_WINDOW = 16_384
"""Pairs that are sorted by length together, enough for batches of nearly equal lengths."""

CPU_TOKENS, GPU_TOKENS = 2_048, 131_072
"""Tokens per batch. On a CPU a layer's output then stays in the cache for the next layer, and batches of nearly equal
lengths have little padding. A GPU needs larger batches to be limited by arithmetic."""

PAIRS_AT_ONCE = 2**20
"""Pairs of a call that are prepared together. Inputs with markers lie on the device until they are scored, and a call
may have all candidates of a dev split."""

log = logging.getLogger(__name__)


class Scorer:
    """Scores pairs in batches of a token budget: packed rows on a GPU, padded batches on a CPU."""

    def __init__(self, model: Reranker, texts: PairTexts, tokens: int | None = None) -> None:
        """Score pairs of `texts` in batches of `tokens` tokens, by default CPU_TOKENS or GPU_TOKENS."""
        self.model, self._texts = model, texts
        self._device = next(model.parameters()).device
        on_gpu = self._device.type == "cuda"
        self.packs = on_gpu and model.encoder.packs
        is_bfloat16 = next(model.encoder.parameters()).dtype == torch.bfloat16
        self._autocast: AbstractContextManager[Any] = torch.autocast(
            self._device.type, torch.bfloat16, enabled=on_gpu and not is_bfloat16
        )
        self.tokens = self._usable_budget(tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS))

    @property
    def parallel_tokens(self) -> int:
        """The number of tokens that keeps the device busy: one batch."""
        return self.tokens

    def with_texts(self, texts: PairTexts) -> "Scorer":
        """Return a scorer for other texts with the same model and budget."""
        return type(self)(self.model, texts, self.tokens)

    def num_in_full_rows(self) -> int:
        """Return how many pairs, of query row i with passage row i, fill whole packed rows; the rest fill no row."""
        rows = np.arange(len(self._texts.prefixes))
        *_, (start, _) = self._row_slices(self._texts.lengths(rows, rows, self._device))
        return start

    def __call__(self, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        """Return the score of each (query row, passage row)."""
        return self.begin(query_rows, passage_rows)()

    def begin(self, query_rows: Rows, passage_rows: Rows) -> Callable[[], NDArray[np.float32]]:
        """Launch scoring on the device and return a function that waits for the scores.

        When memory runs out, the token budget is halved, for later calls too.
        """
        was_training = self.model.training
        self.model.eval()
        try:
            while True:
                try:
                    pending = self._launch(query_rows, passage_rows)
                    return lambda: _collect(pending, len(query_rows))
                except torch.OutOfMemoryError:
                    smaller = self._usable_budget(self.tokens // 2)
                    if smaller < self._texts.length or smaller == self.tokens:
                        raise
                    self.tokens = smaller
                    log.warning("out of memory: batches of %s tokens from now on", f"{self.tokens:,}")
                # After the handler, in which the exception would keep the failed batch in memory.
                torch.cuda.empty_cache()
        finally:
            self.model.train(was_training)

    @torch.inference_mode()
    def _launch(self, query_rows: Rows, passage_rows: Rows) -> list[tuple[Rows, Tensor]]:
        pending = []
        for start in range(0, len(query_rows), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            lengths, score = self._prepare(query_rows[part], passage_rows[part])
            for chosen in self.batches(lengths):
                with self._autocast:
                    pending.append((start + chosen, score(chosen)))
        return pending

    def _prepare(self, query_rows: Rows, passage_rows: Rows) -> tuple[Rows, Callable[[Rows], Tensor]]:
        """Return the lengths of the pairs, by which they are batched, and a function that scores one batch of them."""
        inputs = self._texts.inputs(query_rows, passage_rows, self._device)
        return inputs.lengths, lambda chosen: self._output(self.model(self._batch(inputs, chosen)))

    def _batch(self, inputs: PairInputs, chosen: Rows) -> PaddedBatch | PackedBatch:
        if not self.packs:
            return inputs.padded(chosen)
        return inputs.packed(chosen, row_length(int(inputs.lengths[chosen].sum())))

    @staticmethod
    def _output(read: Tensor) -> Tensor:
        """Return one score per pair from the model's logits; a subclass may return something else per pair."""
        return relevance_score(read)

    def _usable_budget(self, tokens: int) -> int:
        """Return the budget, for packed rows rounded up to whole blocks and to at least one pair."""
        return row_length(max(tokens, self._texts.length)) if self.packs else tokens

    def batches(self, lengths: Rows) -> Iterator[Rows]:
        """Yield the batches in which pairs of these lengths are scored, as indices into `lengths`."""
        if not self.packs:
            yield from length_sorted_batches(lengths, self.tokens)
            return
        for start, stop in self._row_slices(lengths):
            yield start + block_aligned_order(lengths[start:stop])

    def _row_slices(self, lengths: Rows) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of consecutive pairs that fit into one packed row."""
        ends = np.cumsum(lengths)
        start = 0
        while start < len(lengths):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + self.tokens, side="right"))
            yield start, stop
            start = stop


def row_length(tokens: int) -> int:
    """Return the length of a packed row for this many tokens: whole query blocks, at least two.

    torch.compile specialises on a dimension of size 1, so there is never a single block.
    """
    return max(2, -(-tokens // QUERY_BLOCK)) * QUERY_BLOCK


def block_aligned_order(lengths: Rows) -> Rows:
    """Return an order in which sequences, two by two where possible, end where a query block ends.

    A block that holds fewer sequences reads fewer keys: with a mean length of 102, attention reads a sixth less.
    """
    rest = lengths % QUERY_BLOCK
    counts = np.bincount(rest, minlength=QUERY_BLOCK)
    # Sequence i of those with remainder r is paired with sequence i of those with remainder QUERY_BLOCK - r.
    number = np.empty_like(rest)
    number[np.argsort(rest, kind="stable")] = np.arange(len(rest)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_unpaired = number >= counts[-rest % QUERY_BLOCK]
    return np.lexsort((rest, number, np.minimum(rest, QUERY_BLOCK - rest), is_unpaired))


def _collect(pending: list[tuple[Rows, Tensor]], count: int) -> NDArray[np.float32]:
    """Return the scores in the caller's order; .cpu() waits for the device, so it is called after the last launch."""
    shape = pending[0][1].shape[1:] if pending else ()
    scores = np.empty((count, *shape), np.float32)
    for chosen, values in pending:
        scores[chosen] = values.float().cpu().numpy()
    return scores


def length_sorted_batches(lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Yield batches of similar lengths whose padded size is within a token budget, as indices into `lengths`."""
    for start in range(0, len(lengths), SORT_WINDOW):
        order = start + np.argsort(lengths[start : start + SORT_WINDOW], kind="stable")
        yield from _budget_slices(order, lengths[order], tokens)


def _budget_slices(order: Rows, lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Yield slices of length-sorted pairs whose padded size is within the budget, at least one pair each."""
    start = 0
    while start < len(order):
        # Lengths ascend, so the last pair of a slice is its longest.
        sizes = lengths[start:] * np.arange(1, len(order) - start + 1)
        count = max(1, int(np.searchsorted(sizes, tokens, side="right")))
        yield order[start : start + count]
        start += count
