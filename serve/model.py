"""A model that serves requests: an exported folder and one batcher in front of its scorer, without Ray."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit
from tokenizers import Encoding

from rayrank.bundle.explain import explain
from rayrank.bundle.export import load
from rayrank.bundle.predicted_types import types_for
from rayrank.models.batches import PairTexts
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.prepare import compile_for_scoring, scoring_copy
from rayrank.models.inference.scorer import Scorer
from rayrank.serve.batching import Batcher
from rayrank.serve.config import ServeConfig
from rayrank.serve.long_documents import LongDocuments, Parts
from rayrank.serve.order import first_stage_order, ranked
from rayrank.serve.piece_cache import PieceCache
from rayrank.serve.records import Answer, Ask, Info, Load, Overloaded, Piece, Timing
from rayrank.text.ragged import Ids, Ragged
from rayrank.text.template import Template

DTYPES = {"onnx-int8": "int8", "torch-fp8": "fp8"}
"""Precision of the backends whose precision does not depend on the device."""

CPU_BATCH_FACTOR = 2
"""On a CPU, a batch holds this many times the tokens that keep the scorer busy, or more if many requests wait. The
scorer then groups pairs of similar length, which reduces padding; a GPU packs pairs without padding."""

MAX_EXPLANATIONS = 8
"""Explanations that a replica accepts at once. Each takes seconds and counts as an ongoing request."""

REPLY_MARGIN_S = 0.02
"""Seconds before a deadline at which scoring ends, so that the answer reaches the client in time."""

MAX_FAILED_BATCHES = 3
"""Failed batches in a row after which the replica reports itself unhealthy, and Serve replaces it."""

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
    num_cached: int
    """Passages whose word pieces were in the cache."""


class ServedModel:
    """Re-ranks passages for many clients at once; implements `Backend` except for `search`."""

    def __init__(self, config: ServeConfig) -> None:
        """Load the exported folder and score a first batch, so that compilation is over before the first request."""
        self.config = config
        self._exported = self._explained = load(config.model, config.backend)
        tokenizer, settings = self._exported.tokenizer, self._exported.settings
        self._template = Template.of(tokenizer, settings.input)
        self._long = LongDocuments(self._exported, config.long_documents)
        self._pieces = PieceCache(self._long.encode, config.batching.cache_pieces)
        self._tokenisers = ThreadPoolExecutor(config.batching.tokenisers, "tokenising")
        # One at a time: an explanation takes as long as scoring hundreds of pairs.
        self._explainer = ThreadPoolExecutor(1, "explaining")
        self._scorer = self._open_scorer(config.batching.tokens)
        self._on_gpu = next(self._exported.model.parameters()).is_cuda
        self._warm_up()
        batching, on_gpu = config.batching, self._on_gpu
        tokens = self._scorer.parallel_tokens * (1 if on_gpu else CPU_BATCH_FACTOR)
        self._batcher = Batcher(self._begin, tokens, batching.wait_ms / 1000, batching.queued_pairs, grows=not on_gpu)
        self._num_explaining = 0
        self._num_active = 0

    async def rerank(self, ask: Ask) -> Answer:
        """Return the scores and the order of the passages; raises Overloaded."""
        with self._active():
            return await self._rerank(ask)

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        """Return why a passage got its score; raises Overloaded."""
        if self._num_explaining >= MAX_EXPLANATIONS:
            raise Overloaded(MAX_EXPLANATIONS)
        work = asyncio.get_running_loop().run_in_executor
        self._num_explaining += 1
        try:
            with self._active():
                start, end = 0, len(passage)
                if self._long.in_windows:
                    answer = await self._rerank(Ask(query, [passage], query_type))
                    start, end = answer.windows.get(0, (start, end))
                part = passage[start:end]
                found = await work(self._explainer, explain, self._explained, query, part, query_type)
                return found if part == passage else _in_whole(found, start, end)
        finally:
            self._num_explaining -= 1

    async def info(self) -> Info:
        """Describe the model."""
        settings, calibration = self._exported.settings, self._exported.calibration
        return Info(
            model=self.config.name,
            backend=self.config.backend,
            device=str(next(self._exported.model.parameters()).device),
            length=settings.input.length,
            query_types=settings.types,
            strm=settings.strm.form,
            first_stage_weight=settings.first_stage_weight,
            calibration=calibration.figures() if calibration else None,
            version=version("rayrank"),
            dtype=DTYPES.get(self.config.backend) or ("bfloat16" if self._on_gpu else "float32"),
            batch_tokens=self._scorer.parallel_tokens,
            tokenisers=self.config.batching.tokenisers,
        )

    def load(self) -> Load:
        """Return what this model is busy with."""
        return Load(self._batcher.num_queued)

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        """Return the word pieces of each text, up to the model's maximum length."""
        work = asyncio.get_running_loop().run_in_executor
        encodings = await work(self._tokenisers, self._long.encode.batch_with_offsets, texts, with_special)
        return [_pieces(encoding) for encoding in encodings]

    def check(self) -> None:
        """Raise an error if the model can no longer score."""
        if not self._batcher.is_alive or self._batcher.num_failed >= MAX_FAILED_BATCHES:
            raise RuntimeError(f"{self.config.model} cannot score: {self._batcher.num_failed} batches in a row failed")

    async def close(self) -> None:
        """Free the scorer once all accepted requests are answered."""
        while self._num_active:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self._batcher.close)
        # Not waited for: a thread may still work for a client that has disconnected.
        self._tokenisers.shutdown(wait=False)
        self._explainer.shutdown(wait=False)

    @contextmanager
    def _active(self) -> Iterator[None]:
        self._num_active += 1
        try:
            yield
        finally:
            self._num_active -= 1

    async def _rerank(self, ask: Ask) -> Answer:
        began, left, loop = time.monotonic(), ask.seconds_left(), asyncio.get_running_loop()
        deadline = None if left is None else began + left - min(REPLY_MARGIN_S, left / 10)
        try:
            async with asyncio.timeout(left):
                # Pairs that wait for a tokeniser thread count as queued.
                with self._batcher.reserve(len(ask.passages)):
                    inputs = await loop.run_in_executor(self._tokenisers, self._inputs, ask)
        except TimeoutError:
            return Answer.unscored(ask, self.config.name, Timing(tokenise=time.monotonic() - began))
        tokenised = time.monotonic()
        # With a deadline the first stage's best passages are scored first; without one the batcher chooses the order.
        priority = None if deadline is None else inputs.parts.expand(first_stage_order(ask))
        scored = await self._batcher(inputs.pairs, inputs.lengths, deadline, priority)
        best = inputs.parts.best(scored.scores)
        windows: dict[int, tuple[int, int]] = {}
        if self._long.in_windows:
            spans = partial(self._long.spans, ask.passages, inputs.parts, best)
            windows = await loop.run_in_executor(self._tokenisers, spans)
        logits = [None if part is None else scored.scores[part] for part in best]
        places = [place for place, logit in enumerate(logits) if logit is not None]
        probabilities: list[float | None] = [None] * len(logits)
        for place, probability in zip(places, self._probabilities([logits[place] for place in places]), strict=True):
            probabilities[place] = probability
        return Answer(
            logits=logits,
            probabilities=probabilities,
            order=ranked(logits, ask.first_stage_scores, self._weight(ask)),
            num_tokens=sum(
                length for length, score in zip(inputs.lengths, scored.scores, strict=True) if score is not None
            ),
            cut=inputs.cut,
            windows=windows,
            query_type=inputs.query_type,
            partial=None in scored.scores,
            model=self.config.name,
            timing=Timing(tokenised - began, scored.queued, scored.scoring),
            num_cached=inputs.num_cached,
        )

    def _inputs(self, ask: Ask) -> Inputs:
        query_type = self._query_type(ask)
        query, *types = self._pieces([ask.query] if query_type is None else [ask.query, query_type])
        prefix = self._template.prefixes(Ragged.of([query]), Ragged.of(types) if types else None)[0]
        passages, num_cached = self._pieces.look_up(ask.passages)
        parts = self._long.parts([ids[: ask.max_tokens] for ids in passages])
        texts, rows = self._texts([prefix], parts.pieces), np.arange(len(parts.pieces))
        # The last part of a document ends where the document ends. Markers or a long query type may cut it off.
        last = np.cumsum(parts.counts) - 1
        cut = {*parts.cut, *np.flatnonzero(texts.is_truncated(np.zeros_like(last), last)).tolist()}
        return Inputs(
            pairs=[(prefix, ids) for ids in parts.pieces],
            lengths=texts.lengths(np.zeros_like(rows), rows).tolist(),
            cut=sorted(cut),
            parts=parts,
            query_type=query_type,
            num_cached=num_cached,
        )

    def _weight(self, ask: Ask) -> float:
        own = self._exported.settings.first_stage_weight
        return own if ask.first_stage_weight is None else ask.first_stage_weight

    def _query_type(self, ask: Ask) -> str | None:
        types = types_for(self._exported, [ask.query], [ask.query_type])
        return types[0] if types else None

    def _open_scorer(self, tokens: int | None) -> Scorer | OnnxScorer:
        no_texts = self._texts([], [])
        if self._exported.int8 is not None:
            return OnnxScorer(self._exported.int8, no_texts, tokens)
        model, fp8 = self._exported.model, self.config.backend == "torch-fp8"
        if torch.cuda.is_available():
            model.cuda()
        if fp8:
            # The score changes that an explanation shows are smaller than the rounding errors of fp8.
            self._explained = replace(self._exported, model=scoring_copy(model))
        compile_for_scoring(model, fp8)
        return Scorer(self._exported.model, no_texts, tokens)

    def _warm_up(self) -> None:
        """Score a full batch, if on a GPU, and a single pair, so that kernels are compiled before the first request."""
        inputs = self._inputs(Ask("a first query", ["a first passage"]))
        if self._on_gpu:
            self._begin(inputs.pairs * max(1, self._scorer.tokens // inputs.lengths[0]))()
        self._begin(inputs.pairs)()

    def _begin(self, pairs: list[Pair]) -> Callable[[], list[float]]:
        """Start scoring pairs on the scoring thread, and return a function that waits for the scores."""
        # The pairs of a request share one prefix array.
        prefixes = {id(prefix): prefix for prefix, _ in pairs}
        rows = {key: row for row, key in enumerate(prefixes)}
        texts = self._texts(list(prefixes.values()), [passage for _, passage in pairs])
        # Kept, because a scorer that ran out of memory uses smaller batches from then on.
        self._scorer = self._scorer.with_texts(texts)
        query_rows = np.array([rows[id(prefix)] for prefix, _ in pairs])
        begin = partial(self._scorer.begin, query_rows, np.arange(len(pairs)))
        # On a CPU, torch returns when the batch is scored: start it after the scores of the last batch are returned.
        scores = begin() if self._on_gpu or self._exported.int8 is not None else lambda: begin()()
        return lambda: scores().tolist()

    def _texts(self, prefixes: Sequence[Ids], passages: Sequence[Ids]) -> PairTexts:
        return PairTexts(Ragged.of(prefixes), Ragged.of(passages), self._template)

    def _probabilities(self, logits: Sequence[float | None]) -> list[float]:
        values = np.array(logits, np.float64)
        calibration = self._exported.calibration
        found: list[float] = (expit(values) if calibration is None else calibration.apply(values)).tolist()
        return found


def _pieces(encoding: Encoding) -> list[Piece]:
    columns = zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask, encoding.offsets, strict=True)
    return [
        Piece(id_, token, True) if special else Piece(id_, token, False, *span) for id_, token, special, span in columns
    ]


def _in_whole(explanation: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    """Return the explanation of a window with the positions of its pieces counted in the whole passage."""
    pieces = [
        {**piece, "start": piece["start"] + start, "end": piece["end"] + start}
        if piece["segment"] == "document"
        else piece
        for piece in explanation["pieces"]
    ]
    return {**explanation, "pieces": pieces, "window": {"start": start, "end": end}}
