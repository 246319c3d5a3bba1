"""Tokenises requests: their texts become the pairs of word pieces that the scorer reads."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from tokenizers import Encoding

from rayrank.bundle.export import Bundle
from rayrank.bundle.predicted_types import types_for, unknown_type
from rayrank.models.pair_texts import PairTexts
from rayrank.serve.config import ServeConfig
from rayrank.serve.long_documents import LongDocuments, Parts
from rayrank.serve.piece_cache import PieceCache
from rayrank.serve.records import Ask, Piece
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
    query_cut: bool
    parts: Parts
    """The passages of the pairs."""
    query_type: str | None
    num_cached: int
    """Passages whose word pieces were in the cache."""
    warnings: list[str]


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
        work, pieces, num_cached = asyncio.get_running_loop().run_in_executor, list[Ids](), 0
        for texts in slices(ask.passages):
            found, known = await work(self._threads, self._pieces.look_up, texts)
            pieces, num_cached = pieces + found, num_cached + known
        return await work(self._threads, self._inputs, ask, pieces, num_cached)

    def read_at_once(self, ask: Ask) -> Inputs:
        """Tokenise a request in this thread."""
        return self._inputs(ask, *self._pieces.look_up(ask.passages))

    async def spans(
        self, ask: Ask, parts: Parts, best: Mapping[int, int | None], deadline: float | None
    ) -> dict[int, tuple[int, int]]:
        """Return the characters of the best windows of documents, as far as there is time for it before `deadline`.

        `best` has the best part by the position of the document; one that was read in one piece has no window."""
        chosen = {place: part for place, part in best.items() if part is not None and parts.counts[place] > 1}
        left = None if deadline is None else deadline - time.monotonic()
        found: dict[int, tuple[int, int]] = {}
        if left is not None and left <= 0:
            return found
        work, places = asyncio.get_running_loop().run_in_executor, list(chosen)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                for texts in slices([ask.passages[place] for place in chosen]):
                    here = places[len(found) : len(found) + len(texts)]
                    windows = [chosen[place] for place in here]
                    found.update(
                        zip(here, await work(self._threads, self._long.spans, texts, parts, windows), strict=True)
                    )
        return found

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        """Return the word pieces of each text, up to the model's maximum length."""
        work = asyncio.get_running_loop().run_in_executor
        encodings = await work(self._threads, self._long.encode.batch_with_offsets, texts, with_special)
        return [_pieces(encoding) for encoding in encodings]

    def texts(self, prefixes: Sequence[Ids], passages: Sequence[Ids]) -> PairTexts:
        """Return texts that the scorer can pair."""
        return PairTexts(Ragged.of(prefixes), Ragged.of(passages), self._template)

    def close(self) -> None:
        """Free the threads without waiting for them: one may still work for a client that has disconnected."""
        self._threads.shutdown(wait=False)

    def _inputs(self, ask: Ask, passages: list[Ids], num_cached: int) -> Inputs:
        query_type = self._query_type(ask)
        query, *types = self._pieces([ask.query] if query_type is None else [ask.query, query_type])
        prefix = self._template.prefixes(Ragged.of([query]), Ragged.of(types) if types else None)[0]
        parts = self._long.parts([ids[: ask.max_tokens] for ids in passages])
        texts, rows = self.texts([prefix], parts.pieces), np.arange(len(parts.pieces))
        # The last part of a document ends where the document ends. Markers or a long query type may cut it off.
        last = np.cumsum(parts.counts) - 1
        cut = {*parts.cut, *np.flatnonzero(texts.is_truncated(np.zeros_like(last), last)).tolist()}
        return Inputs(
            pairs=[(prefix, ids) for ids in parts.pieces],
            lengths=texts.lengths(np.zeros_like(rows), rows).tolist(),
            cut=sorted(cut),
            query_cut=len(query) > self._template.query_length,
            parts=parts,
            query_type=query_type,
            num_cached=num_cached,
            warnings=[warning] if (warning := unknown_type(self._exported, ask.query_type)) else [],
        )

    def _query_type(self, ask: Ask) -> str | None:
        types = types_for(self._exported, [ask.query], [ask.query_type])
        return types[0] if types else None


def _pieces(encoding: Encoding) -> list[Piece]:
    columns = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    return [
        Piece(id_, token, True) if special else Piece(id_, token, False, *span) for id_, token, special, span in columns
    ]


def slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield texts in order, in slices of at most SLICE_CHARACTERS, or of one longer text."""
    begin, size = 0, 0
    for place, text in enumerate(texts):
        if place > begin and size + len(text) > SLICE_CHARACTERS:
            yield texts[begin:place]
            begin, size = place, 0
        size += len(text)
    if begin < len(texts):
        yield texts[begin:]
