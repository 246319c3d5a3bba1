"""Scoring: pairs of rows in, one float32 score each out, in the caller's order."""

import logging
from collections.abc import Callable, Iterator
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rayrank.core.errors import ConfigError
from rayrank.models.attention.packed import BLOCK, compile_layers
from rayrank.models.batches import PairTexts
from rayrank.models.inference.fused_layers import check_eight_bits, fuse, use_eight_bits
from rayrank.models.reranker import Reranker, relevance_score
from rayrank.text.ragged import Rows

POOL = 16_384
"""Pairs sorted by length together: enough for batches of nearly equal lengths, few enough to keep in memory."""

CPU_TOKENS, GPU_TOKENS = 2_048, 131_072
"""Tokens a batch: on a CPU so few that what a layer leaves for the next is still in the cache, and hardly any is
padding. A GPU needs more at once before it is the arithmetic that takes the time."""

OLDEST_WITH_EIGHT_BITS = (8, 9)

log = logging.getLogger(__name__)


def halve(model: Reranker) -> None:
    """Give a model that is not trained any more half the bytes on a GPU: the precision of all scoring there."""
    first = next(model.parameters())
    # Once is enough, and twice would undo eight bits.
    if model.encoder.packs and first.is_cuda and first.dtype != torch.bfloat16:
        model.encoder.bfloat16()


def hasten(model: Reranker, eight_bits: bool = False) -> None:
    """Compile such a model as well, for rows of all lengths, with fewer and larger products or those of eight bits."""
    if eight_bits:
        quarter(model)
    halve(model)
    if model.encoder.packs and next(model.parameters()).is_cuda:
        fuse(model.encoder.base)
        compile_layers(model.encoder.base)


def quarter(model: Reranker) -> None:
    """Give the layers of a model eight bits a weight, or say why that cannot be."""
    check_eight_bits(model)
    device = next(model.parameters()).device
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < OLDEST_WITH_EIGHT_BITS:
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
        raise ConfigError(
            f"backend=torch-fp8 cannot be used on {name}: it needs a GPU that multiplies floats of eight bits, such as "
            f"an H100; set it to torch."
        )
    halve(model)
    use_eight_bits(model.encoder.base)


def snapshot(model: Reranker) -> Reranker:
    """Return a model in training as it would score; a copy where that changes it, which is never compiled."""
    if not next(model.parameters()).is_cuda:
        return model
    copied = deepcopy(model)
    halve(copied)
    return copied


class Scorer:
    """Runs a re-ranker over pairs in batches of a token budget: packed rows on a GPU, rectangles elsewhere."""

    def __init__(self, model: Reranker, texts: PairTexts, tokens: int | None = None) -> None:
        """Take the budget."""
        self.model, self._texts = model, texts
        self._device = next(model.parameters()).device
        on_gpu = self._device.type == "cuda"
        self.packs = on_gpu and model.encoder.packs
        is_half = next(model.encoder.parameters()).dtype == torch.bfloat16
        self._autocast = torch.autocast(self._device.type, torch.bfloat16, enabled=on_gpu and not is_half)
        self.tokens = self._fitting(tokens or (GPU_TOKENS if on_gpu else CPU_TOKENS))

    @property
    def at_once(self) -> int:
        """Tokens that keep the device busy: one batch."""
        return self.tokens

    def over(self, texts: PairTexts) -> "Scorer":
        """Return a scorer of other texts by the same model."""
        return Scorer(self.model, texts, self.tokens)

    def num_whole(self) -> int:
        """Return how many pairs, row by row of the texts, fill packed rows; what is left of them would not."""
        rows = np.arange(len(self._texts.prefixes))
        *_, (start, _) = self._runs(self._texts.lengths(rows, rows))
        return start

    def __call__(self, query_rows: Rows, passage_rows: Rows) -> NDArray[np.float32]:
        """Return the score of each (query row, passage row)."""
        return self.begin(query_rows, passage_rows)()

    def begin(self, query_rows: Rows, passage_rows: Rows) -> Callable[[], NDArray[np.float32]]:
        """Let a GPU begin to score and return what waits for the scores; with half the budget where memory runs out."""
        was_training = self.model.training
        self.model.eval()
        try:
            while True:
                try:
                    pending = self._begin(query_rows, passage_rows)
                    return lambda: _gathered(pending, len(query_rows))
                except torch.OutOfMemoryError:
                    smaller = self._fitting(self.tokens // 2)
                    if smaller < self._texts.length or smaller == self.tokens:
                        raise
                    self.tokens = smaller
                    log.warning("out of memory: batches of %s tokens from now on", f"{self.tokens:,}")
                # Not in the handler: there the failed batch is still held.
                torch.cuda.empty_cache()
        finally:
            self.model.train(was_training)

    @torch.inference_mode()
    def _begin(self, query_rows: Rows, passage_rows: Rows) -> list[tuple[Rows, Tensor]]:
        lengths = self._texts.lengths(query_rows, passage_rows)
        pending = []
        for chosen in self.batches(lengths):
            with self._autocast:
                pending.append((chosen, self._score(query_rows[chosen], passage_rows[chosen])))
        return pending

    def _score(self, query_rows: Rows, passage_rows: Rows) -> Tensor:
        if not self.packs:
            return relevance_score(self.model(self._texts.padded(query_rows, passage_rows, self._device)))
        size = row_size(int(self._texts.lengths(query_rows, passage_rows).sum()))
        return relevance_score(self.model(self._texts.packed(query_rows, passage_rows, size, self._device)))

    def _fitting(self, tokens: int) -> int:
        """Return a budget that can be used: a packed row holds one pair at least, in whole blocks."""
        return row_size(max(tokens, self._texts.length)) if self.packs else tokens

    def batches(self, lengths: Rows) -> Iterator[Rows]:
        """Yield what is scored together, as places in the caller's order."""
        if not self.packs:
            yield from pools(lengths, self.tokens)
            return
        for start, stop in self._runs(lengths):
            yield start + aligned(lengths[start:stop])

    def _runs(self, lengths: Rows) -> Iterator[tuple[int, int]]:
        """Yield runs of pairs that fit a packed row."""
        ends = np.cumsum(lengths)
        start = 0
        while start < len(lengths):
            before = ends[start - 1] if start else 0
            stop = int(np.searchsorted(ends, before + self.tokens, side="right"))
            yield start, stop
            start = stop


def row_size(tokens: int) -> int:
    """Return the length of a packed row that holds as many: whole blocks, two at least, which masks ask for."""
    return max(2, -(-tokens // BLOCK)) * BLOCK


def aligned(lengths: Rows) -> Rows:
    """Return an order in which most second sequences end where a block of attention does.

    Sequences that begin with a block span fewer of them: with lengths of 102 on average, attention reads a sixth less.
    """
    rest = lengths % BLOCK
    counts = np.bincount(rest, minlength=BLOCK)
    # Each one's number among those of the same rest; it goes with the one of that number which fills the block up.
    number = np.empty_like(rest)
    number[np.argsort(rest, kind="stable")] = np.arange(len(rest)) - np.repeat(np.cumsum(counts) - counts, counts)
    is_left_over = number >= counts[-rest % BLOCK]
    return np.lexsort((rest, number, np.minimum(rest, BLOCK - rest), is_left_over))


def _gathered(pending: list[tuple[Rows, Tensor]], count: int) -> NDArray[np.float32]:
    """Return the scores in the caller's order; only now, since every .cpu() waits for the device."""
    scores = np.empty(count, np.float32)
    for chosen, values in pending:
        scores[chosen] = values.float().cpu().numpy()
    return scores


def pools(lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Yield batches of like lengths within a token budget, as places in the caller's order."""
    for start in range(0, len(lengths), POOL):
        order = start + np.argsort(lengths[start : start + POOL], kind="stable")
        yield from _budgets(order, lengths[order], tokens)


def _budgets(order: Rows, lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Yield runs of length-sorted pairs whose padded size stays within the budget, one pair at least."""
    start = 0
    while start < len(order):
        # Lengths ascend, so the last of a run is its longest.
        sizes = lengths[start:] * np.arange(1, len(order) - start + 1)
        count = max(1, int(np.searchsorted(sizes, tokens, side="right")))
        yield order[start : start + count]
        start += count
