"""Which window of a judged passage a model is trained on: the judgment is of the passage, not of a window."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from rayrank.models.pair_texts import PairTexts
from rayrank.scores.window_scores import best_window
from rayrank.text.prefixes import query_places
from rayrank.text.ragged import Ids, Rows
from rayrank.text.windows import PassageWindows

BLOCK = 1 << 24
"""Pieces of the corpus that are counted at a time."""


@dataclass(frozen=True)
class WindowChoice:
    """Chooses the window that shares most with the query: each piece of the query counts once, rare pieces more."""

    texts: PairTexts
    """The prefixes of queries, and the windows as passages."""
    windows: PassageWindows
    _copies: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> Rows:
        """Return the row of the chosen window of each pair; of equally good ones, the first."""
        rows, counts = self.windows.of_passages(passage_rows)
        found: Rows = rows[np.cumsum(counts) - counts]
        several = counts > 1
        if several.any():
            chosen = np.repeat(several, counts)
            scores = self._shared(np.repeat(query_rows, counts)[chosen], rows[chosen], device)
            found[several] = rows[chosen][best_window(scores.cpu().numpy(), counts[several])]
        return found

    def _shared(self, query_rows: Rows, window_rows: Rows, device: torch.device) -> Tensor:
        """Return the summed weight of the pieces that each query shares with its window."""
        texts, _, rows = self.texts.for_batch(query_rows, window_rows, device)
        lengths = texts.passages.lengths(rows)
        before = np.cumsum(lengths) - lengths
        shifts = torch.from_numpy(np.stack([query_rows, texts.passages.starts[rows] - before])).to(device)
        window = torch.repeat_interleave(torch.from_numpy(lengths).to(device), output_size=int(lengths.sum()))
        query, shift = shifts[:, window]
        pieces = texts.ids_on(device)[1][torch.arange(len(window), device=device) + shift]
        keys, weights = self._on(device)
        wanted = query << 32 | pieces
        place = torch.searchsorted(keys, wanted).clamp(max=len(keys) - 1)
        is_shared = keys[place] == wanted
        # A piece that a window has several times counts once.
        shared = torch.unique(window[is_shared] << 32 | place[is_shared])
        scores = torch.zeros(len(window_rows), dtype=torch.int64, device=device)
        return scores.index_add_(0, shared >> 32, weights[shared & 0xFFFFFFFF])

    def _on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return `query row << 32 | piece` of all queries' pieces, ascending, and the weight of each."""
        if device not in self._copies:
            prefixes, template = self.texts.prefixes, self.texts.template
            rows, places = query_places(prefixes, template.sep_id, template.has_type)
            keys = np.unique(rows << 32 | prefixes.values[places].astype(np.int64))
            counts = _counts(self.texts.passages.values, int((keys & 0xFFFFFFFF).max(initial=0)) + 1)
            rarity = np.log1p(counts.sum() / np.maximum(counts, 1))[keys & 0xFFFFFFFF]
            # Whole numbers, because a GPU adds floats in any order, and windows with the same pieces must be equal.
            weights = np.rint(rarity * 2**16).astype(np.int64)
            self._copies[device] = torch.from_numpy(keys).to(device), torch.from_numpy(weights).to(device)
        return self._copies[device]


def _counts(ids: Ids, minimum: int) -> Rows:
    """Return how often each id occurs; numpy would copy all ids to count them at once."""
    size = max(minimum, int(ids.max(initial=0)) + 1)
    parts = (np.bincount(ids[start : start + BLOCK], minlength=size) for start in range(0, len(ids), BLOCK))
    return sum(parts, np.zeros(size, np.int64))
