"""Tokenises requests: their texts become the pairs of word pieces that the scorer reads."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from rayrank.bundle.export import Bundle
from rayrank.bundle.predicted_types import types_for
from rayrank.models.batches import PairTexts
from rayrank.serve.config import ServeConfig
from rayrank.serve.long_documents import LongDocuments, Parts
from rayrank.serve.piece_cache import PieceCache
from rayrank.serve.records import Ask
from rayrank.text.ragged import Ids, Ragged
from rayrank.text.template import Template

SLICE_CHARACTERS = 50_000
"""Characters of a request that are tokenised in one go, which takes hundredths of a second. Then requests that wait for
a thread have their turn."""

Pair = tuple[Ids, Ids]
"""Word pieces of the prefix, which holds the query and its type, and of the passage."""


class Inputs(NamedTuple):
    """A tokenised request."""

    pairs: list[Pair]
    lengths: list[int]
    cut: list[int]
    """Positions of passages that were truncated."""
    parts: Parts
    """The passages of the pairs."""
    query_type: str | None


class RequestReader:
    """Makes a model's inputs of requests, on a few threads."""

    def __init__(self, exported: Bundle, config: ServeConfig) -> None:
        self._exported = exported
        self._template = Template.of(exported.tokenizer, exported.settings.input)
        self._long = LongDocuments(exported, config.long_documents)
        self._pieces = PieceCache(self._long.encode, config.batching.cache_pieces)
        self._threads = ThreadPoolExecutor(config.batching.tokenisers, "tokenising")
        self.in_windows = self._long.in_windows

    async def read(self, ask: Ask) -> Inputs:
        """Tokenise a request slice by slice, so that a long request does not hold up short ones."""
        work, pieces = asyncio.get_running_loop().run_in_executor, list[Ids]()
        for texts in slices(ask.passages):
            pieces += await work(self._threads, self._pieces, texts)
        return await work(self._threads, self._inputs, ask, pieces)

    def read_at_once(self, ask: Ask) -> Inputs:
        """Tokenise a request in this thread."""
        return self._inputs(ask, self._pieces(ask.passages))

    async def spans(self, ask: Ask, parts: Parts, best: list[int | None]) -> dict[int, tuple[int, int]]:
        """Return the characters of the best windows, for documents that were read in several."""
        find = partial(self._long.spans, ask.passages, parts, best)
        return await asyncio.get_running_loop().run_in_executor(self._threads, find)

    def texts(self, prefixes: Sequence[Ids], passages: Sequence[Ids]) -> PairTexts:
        """Return texts that the scorer can pair."""
        return PairTexts(Ragged.of(prefixes), Ragged.of(passages), self._template)

    def close(self) -> None:
        """Free the threads without waiting for them: one may still work for a client that has disconnected."""
        self._threads.shutdown(wait=False)

    def _inputs(self, ask: Ask, passages: list[Ids]) -> Inputs:
        query_type = self._query_type(ask)
        query, *types = self._pieces([ask.query] if query_type is None else [ask.query, query_type])
        prefix = self._template.prefixes(Ragged.of([query]), Ragged.of(types) if types else None)[0]
        parts = self._long.parts(passages)
        texts, rows = self.texts([prefix], parts.pieces), np.arange(len(parts.pieces))
        # The last part of a document ends where the document ends. Markers or a long query type may cut it off.
        last = np.cumsum(parts.counts) - 1
        cut = {*parts.cut, *np.flatnonzero(texts.is_truncated(np.zeros_like(last), last)).tolist()}
        return Inputs(
            pairs=[(prefix, ids) for ids in parts.pieces],
            lengths=texts.lengths(np.zeros_like(rows), rows).tolist(),
            cut=sorted(cut),
            parts=parts,
            query_type=query_type,
        )

    def _query_type(self, ask: Ask) -> str | None:
        types = types_for(self._exported, [ask.query], [ask.query_type])
        return types[0] if types else None


def slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts in order, in slices of at most SLICE_CHARACTERS, or of one longer text."""
    begin, size = 0, 0
    for place, text in enumerate(texts):
        if size and size + len(text) > SLICE_CHARACTERS:
            yield texts[begin:place]
            begin, size = place, 0
        size += len(text)
    if begin < len(texts):
        yield texts[begin:]
