"""The model that answers: an exported folder behind one batcher, without Ray."""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import expit

from rayrank.bundle.explain import explain
from rayrank.bundle.export import load
from rayrank.bundle.predicted_types import types_for
from rayrank.models.batches import PairTexts
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.prepare import compile_for_scoring, scoring_copy
from rayrank.models.inference.scorer import Scorer
from rayrank.scores.interpolation import interpolate
from rayrank.text.pieces import PieceEncoder
from rayrank.text.ragged import Ids, Ragged
from rayrank.text.template import Template
from serve.batching import Batcher
from serve.config import ServeConfig
from serve.records import Answer, Ask, Info, Overloaded, Timing

ENTRY = 64
"""What a passage costs the cache besides its ids, as a number of ids: its key, and two Python objects."""

GATHERED = 2
"""Times what keeps it busy that a scorer on a CPU gets at once, or more where many wait: it puts pairs of like length
together, and pads less. A GPU pads nothing."""

EXPLANATIONS = 8
"""That may wait for their turn; each takes seconds, and holds a place that re-ranking could have."""

UNDER_WAY_S = 0.02
"""Of a deadline that is left for the way back, in seconds."""

BROKEN = 3
"""Batches in a row that may fail before a model counts as broken."""

Pair = tuple[Ids, Ids]
"""What a pair begins with, and its passage."""


class Inputs(NamedTuple):
    """A request as the scorer reads it."""

    pairs: list[Pair]
    lengths: list[int]
    cut: list[int]
    query_type: str | None


class PieceCache:
    """Texts as ids; those that were asked for last are kept, up to a number of word pieces."""

    def __init__(self, encode: PieceEncoder, pieces: int) -> None:
        self._encode, self._room = encode, pieces
        self._kept: OrderedDict[bytes, Ids] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, texts: Sequence[str]) -> list[Ids]:
        """Return the ids of each text."""
        # A digest instead of the text: most of a long document is behind the model's length.
        keys = [blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest() for text in texts]
        with self._lock:
            found = {key: self._kept[key] for key in keys if key in self._kept}
            for key in found:
                self._kept.move_to_end(key)
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if new:
            lists = self._encode(list(new.values()))
            rows = Ragged(lists.values.to_numpy(), lists.offsets.to_numpy())
            # Copies: a part of an array would keep all of it.
            fresh = {key: rows[row].copy() for row, key in enumerate(new)}
            found |= fresh
            self._keep(fresh)
        return [found[key] for key in keys]

    def _keep(self, fresh: dict[bytes, Ids]) -> None:
        with self._lock:
            for key, ids in fresh.items():
                if key not in self._kept:
                    self._kept[key] = ids
                    self._room -= len(ids) + ENTRY
            while self._room < 0 and self._kept:
                _, ids = self._kept.popitem(last=False)
                self._room += len(ids) + ENTRY


class ServedModel:
    """Re-ranks for many clients at once; a `Backend` but for the search."""

    def __init__(self, config: ServeConfig) -> None:
        """Open the folder and score a first batch, so that what compiles has compiled."""
        self.config = config
        self._exported = self._explained = load(config.model, config.backend)
        tokenizer, settings = self._exported.tokenizer, self._exported.settings
        self._template = Template.of(tokenizer, settings.input)
        encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), settings.input.length)
        self._pieces = PieceCache(encode, config.batching.cache_pieces)
        self._tokenisers = ThreadPoolExecutor(config.batching.tokenisers, "tokenising")
        # It takes as long as hundreds of pairs; one at a time is enough.
        self._explainer = ThreadPoolExecutor(1, "explaining")
        self._scorer = self._open(config.batching.tokens)
        self._on_gpu = next(self._exported.model.parameters()).is_cuda
        self._warm_up()
        batching, on_gpu = config.batching, self._on_gpu
        tokens = self._scorer.parallel_tokens * (1 if on_gpu else GATHERED)
        self._batcher = Batcher(self._begin, tokens, batching.wait_ms / 1000, batching.queued_pairs, grows=not on_gpu)
        self._explaining = 0
        self._busy = 0

    async def rerank(self, ask: Ask) -> Answer:
        """Return scores and order; raises Overloaded."""
        with self._in_hand():
            return await self._rerank(ask)

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        """Return why a passage got its score; raises Overloaded."""
        if self._explaining >= EXPLANATIONS:
            raise Overloaded(EXPLANATIONS)
        work = asyncio.get_running_loop().run_in_executor
        self._explaining += 1
        try:
            with self._in_hand():
                return await work(self._explainer, explain, self._explained, query, passage, query_type)
        finally:
            self._explaining -= 1

    async def info(self) -> Info:
        """Return what answers."""
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
        )

    def check(self) -> None:
        """Raise if nothing can be scored any more."""
        if not self._batcher.is_alive or self._batcher.num_failed >= BROKEN:
            raise RuntimeError(f"{self.config.model} cannot score: {self._batcher.num_failed} batches in a row failed")

    async def close(self) -> None:
        """Let go of the scorer once the requests in hand are answered."""
        while self._busy:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self._batcher.close)
        # What a client that went away had asked for may still be at work.
        self._tokenisers.shutdown(wait=False)
        self._explainer.shutdown(wait=False)

    @contextmanager
    def _in_hand(self) -> Iterator[None]:
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1

    async def _rerank(self, ask: Ask) -> Answer:
        began, left, loop = time.monotonic(), ask.left(), asyncio.get_running_loop()
        # The answer has a way to go.
        deadline = None if left is None else began + left - min(UNDER_WAY_S, left / 10)
        try:
            async with asyncio.timeout(left):
                # What waits for a thread here is queued, too.
                with self._batcher.expecting(len(ask.passages)):
                    inputs = await loop.run_in_executor(self._tokenisers, self._inputs, ask)
        except TimeoutError:
            return Answer.of_nothing(ask, self.config.name, Timing(tokenise=time.monotonic() - began))
        tokenised = time.monotonic()
        # Without a deadline all are scored, and in which order is the batcher's choice.
        priority = None if deadline is None else _best_first(ask)
        scored = await self._batcher(inputs.pairs, inputs.lengths, deadline, priority)
        logits, there = scored.scores, [place for place, score in enumerate(scored.scores) if score is not None]
        chances = self._probabilities([logits[place] for place in there])
        probabilities: list[float | None] = [None] * len(logits)
        for place, chance in zip(there, chances, strict=True):
            probabilities[place] = chance
        return Answer(
            logits=logits,
            probabilities=probabilities,
            order=ranked(logits, ask.first_stage_scores, self._weight(ask)),
            num_tokens=sum(inputs.lengths[place] for place in there),
            cut=inputs.cut,
            query_type=inputs.query_type,
            partial=len(there) < len(logits),
            model=self.config.name,
            timing=Timing(tokenised - began, scored.queued, scored.scoring),
        )

    def _inputs(self, ask: Ask) -> Inputs:
        kind = self._kind(ask)
        query, *types = self._pieces([ask.query] if kind is None else [ask.query, kind])
        prefix = self._template.prefixes(Ragged.of([query]), Ragged.of(types) if types else None)[0]
        passages = self._pieces(ask.passages)
        before, sizes = np.array(len(prefix)), np.array([len(ids) for ids in passages], np.int64)
        return Inputs(
            pairs=[(prefix, ids) for ids in passages],
            lengths=self._template.lengths(before, sizes).tolist(),
            cut=np.flatnonzero(self._template.is_cut(before, sizes)).tolist(),
            query_type=kind,
        )

    def _weight(self, ask: Ask) -> float:
        own = self._exported.settings.first_stage_weight
        return own if ask.first_stage_weight is None else ask.first_stage_weight

    def _kind(self, ask: Ask) -> str | None:
        kinds = types_for(self._exported, [ask.query], [ask.query_type])
        return kinds[0] if kinds else None

    def _open(self, tokens: int | None) -> Scorer | OnnxScorer:
        nothing = self._texts([], [])
        if self._exported.int8 is not None:
            return OnnxScorer(self._exported.int8, nothing, tokens)
        model, fp8 = self._exported.model, self.config.backend == "torch-fp8"
        if torch.cuda.is_available():
            model.cuda()
        if fp8:
            # The score changes that an explanation shows are smaller than the rounding errors of fp8.
            self._explained = replace(self._exported, model=scoring_copy(model))
        compile_for_scoring(model, fp8)
        return Scorer(self._exported.model, nothing, tokens)

    def _warm_up(self) -> None:
        """Score as much as there will be at a time, then as little, so that what compiles has compiled."""
        inputs = self._inputs(Ask("a first query", ["a first passage"]))
        if self._on_gpu:
            self._begin(inputs.pairs * max(1, self._scorer.tokens // inputs.lengths[0]))()
        self._begin(inputs.pairs)()

    def _begin(self, pairs: list[Pair]) -> Callable[[], list[float]]:
        """Begin to score pairs and return what waits for the scores; on the scoring thread."""
        # The pairs of a request share one prefix array.
        prefixes = {id(prefix): prefix for prefix, _ in pairs}
        rows = {key: row for row, key in enumerate(prefixes)}
        texts = self._texts(list(prefixes.values()), [passage for _, passage in pairs])
        # Kept: where memory ran out it takes less at once from then on.
        self._scorer = self._scorer.with_texts(texts)
        query_rows = np.array([rows[id(prefix)] for prefix, _ in pairs])
        begin = partial(self._scorer.begin, query_rows, np.arange(len(pairs)))
        # Of torch on a CPU all is done once it has begun: it begins when the scores of the batch before are out.
        scores = begin() if self._on_gpu or self._exported.int8 is not None else lambda: begin()()
        return lambda: scores().tolist()

    def _texts(self, prefixes: Sequence[Ids], passages: Sequence[Ids]) -> PairTexts:
        return PairTexts(Ragged.of(prefixes), Ragged.of(passages), self._template)

    def _probabilities(self, logits: Sequence[float | None]) -> list[float]:
        values = np.array(logits, np.float64)
        calibration = self._exported.calibration
        found: list[float] = (expit(values) if calibration is None else calibration.apply(values)).tolist()
        return found


def ranked(logits: Sequence[float | None], first: Sequence[float] | None, weight: float) -> list[int]:
    """Return places of what was scored, best first; equals stay as they came."""
    there = [place for place, score in enumerate(logits) if score is not None]
    values = np.array([logits[place] for place in there], np.float64)
    if first is not None and weight > 0 and there:
        values = interpolate(values, np.array([first[place] for place in there], np.float64), weight)
    return [there[row] for row in np.argsort(-values, kind="stable")]


def _best_first(ask: Ask) -> list[int]:
    """Return places as the first stage orders them, or as they came."""
    places = range(len(ask.passages))
    scores = ask.first_stage_scores
    return list(places) if scores is None else sorted(places, key=lambda place: -scores[place])
