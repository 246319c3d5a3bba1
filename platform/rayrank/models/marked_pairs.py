"""Pairs with MarkedBERT's markers, put together for a whole batch at once on the model's device."""

import warnings
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rayrank.text.markers import Markers
from rayrank.text.ragged import Rows, Windows
from rayrank.text.template import MIN_PASSAGE_PIECES, Template

TOKENS_AT_ONCE = 2**20
"""Tokens of the pairs whose lengths are computed together, to limit memory."""

CPU = torch.device("cpu")


class _Matched(NamedTuple):
    """The tokens of some pairs, one pair after another, and which of them get a marker before or after them."""

    ids: Tensor
    is_passage: Tensor
    pair: Tensor
    numbers: Tensor
    """The number of the markers around a token's word, 0 without."""
    opens: Tensor
    closes: Tensor
    first: Tensor
    """Where each pair begins, and the number of tokens."""

    def begins(self) -> Tensor:
        """Return how many tokens and markers come before each token and its markers, and last the number of all."""
        widths = 1 + self.opens.long() + self.closes.long()
        return torch.cat([widths.new_zeros(1), widths.cumsum(0)])

    def lengths(self) -> Tensor:
        """Return how long each pair is with its markers."""
        return self.begins()[self.first].diff()


class MarkedPairs:
    """Marks the terms that a query and a passage share, in both.

    Whether a passage has a term is decided on what fits of it without markers, so the marked occurrence itself may be
    cut off. A word that is cut counts as the whole word. A query stays unmarked if its markers would leave fewer than
    MIN_PASSAGE_PIECES for the passage.
    """

    def __init__(self, prefixes: Windows, passages: Windows, template: Template, markers: Markers) -> None:
        self._prefixes, self._passages, self._template, self._markers = prefixes, passages, template, markers
        queries = markers.number_queries(prefixes, template.sep_id, template.has_type)
        self._columns = (prefixes.values, passages.values, queries.numbers, markers.terms(passages), *queries[1:])
        self._copies: dict[torch.device, tuple[Tensor, ...]] = {}

    def full_lengths(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> Rows:
        """Return the length of each pair's input before its end is cut to make room for markers."""
        lengths: Rows = (self._matched(query_rows, passage_rows, device).lengths() + 1).cpu().numpy()
        return lengths

    def inputs(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> tuple[Tensor, Tensor, Rows]:
        """Return the inputs of pairs, one after another: ids, whether these belong to the passage, and lengths."""
        matched = self._matched(query_rows, passage_rows, device)
        on_device = (matched.lengths() + 1).clamp(max=self._template.length)
        lengths: Rows = on_device.cpu().numpy()
        ends, size = on_device.cumsum(0), int(lengths.sum())
        begins = matched.begins()
        within = begins[:-1] - begins[matched.first[:-1]][matched.pair] + matched.opens.long()
        starts, lasts = (ends - on_device)[matched.pair], ends[matched.pair] - 1
        # A last position takes what does not fit. This way nothing waits for the device to count.
        ids = torch.full((size + 1,), self._template.sep_id, dtype=torch.int32, device=device)
        types = torch.ones_like(ids, dtype=torch.bool)
        marker = (self._markers.first_id + 2 * (matched.numbers - 1)).int()
        written = (
            (torch.ones_like(matched.opens), 0, matched.ids.int()),
            (matched.opens, -1, marker),
            (matched.closes, 1, marker + 1),
        )
        for is_written, shift, values in written:
            places = starts + within + shift
            places = torch.where(is_written & (places < lasts), places, size)
            ids[places], types[places] = values, matched.is_passage
        return ids[:-1], types[:-1], lengths

    def _matched(self, query_rows: Rows, passage_rows: Rows, device: torch.device) -> _Matched:
        before = self._prefixes.lengths(query_rows)
        sizes = self._template.lengths(before, self._passages.lengths(passage_rows)) - 1
        first = np.concatenate([[0], np.cumsum(sizes)])
        starts = self._prefixes.starts[query_rows], self._passages.starts[passage_rows]
        extents = torch.from_numpy(np.stack([*starts, before, first[:-1], query_rows])).to(device, non_blocking=True)
        pair = torch.repeat_interleave(
            torch.arange(len(sizes), device=device),
            torch.from_numpy(sizes).to(device, non_blocking=True),
            output_size=int(first[-1]),
        )
        prefix_start, passage_start, in_prefix, begin, query = extents[:, pair]
        within = torch.arange(len(pair), device=device) - begin
        is_passage = within >= in_prefix
        prefixes, passages, query_numbers, passage_terms, keys, key_numbers = self._on(device)
        from_prefix = (prefix_start + within).clamp(max=len(prefixes) - 1)
        from_passage = (passage_start + within - in_prefix).clamp(0, len(passages) - 1)
        terms = passage_terms[from_passage].where(is_passage, 0)
        key = query << 32 | terms.abs()
        place = torch.searchsorted(keys, key).clamp(max=len(keys) - 1)
        numbers = key_numbers[place].where(keys[place] == key, 0)
        signed = torch.where(is_passage, numbers * terms.sign(), query_numbers[from_prefix])
        found = _Matched(
            torch.where(is_passage, passages[from_passage], prefixes[from_prefix]),
            is_passage,
            pair,
            *self._marked(signed, is_passage, pair, len(sizes)),
            torch.from_numpy(first).to(device, non_blocking=True),
        )
        return self._with_room(found, extents[2])

    def _marked(
        self, signed: Tensor, is_passage: Tensor, pair: Tensor, num_pairs: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers of the tokens in marked words, and which tokens begin and which end such a word."""
        numbers = signed.abs().long()
        shared = torch.zeros(num_pairs, self._markers.count + 1, dtype=torch.bool, device=signed.device)
        # Terms of queries write to column 0, which is never read as shared.
        shared[pair, numbers.where(is_passage, 0)] = True
        is_marked = (numbers > 0) & shared[pair, numbers]
        goes_on = torch.cat([signed[1:] < 0, signed.new_zeros(1, dtype=torch.bool)])
        return numbers.where(is_marked, 0), is_marked & (signed > 0), is_marked & ~goes_on

    def _with_room(self, found: _Matched, before: Tensor) -> _Matched:
        """Remove the markers of queries that would leave no room for a passage."""
        in_query = (found.opens.long() + found.closes.long()).where(~found.is_passage, 0)
        added = torch.zeros_like(before).index_add_(0, found.pair, in_query)
        room = self._template.length - 1 - MIN_PASSAGE_PIECES - before
        kept = found.is_passage | (added <= room)[found.pair]
        return found._replace(opens=found.opens & kept, closes=found.closes & kept)

    def _on(self, device: torch.device) -> tuple[Tensor, ...]:
        """Return all ids, numbers and terms on a device; the first call copies them there."""
        if device not in self._copies:
            # An empty tensor cannot be indexed, not even to discard the result.
            columns = [values if len(values) else np.full(1, -1, values.dtype) for values in self._columns]
            with warnings.catch_warnings():
                # Arrow's memory is read-only, and nothing writes to these tensors.
                warnings.simplefilter("ignore", UserWarning)
                self._copies[device] = tuple(torch.from_numpy(values).to(device) for values in columns)
        return self._copies[device]
