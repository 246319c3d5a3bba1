"""A model that serves requests: an exported folder and one batcher in front of its scorer, without Ray."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from scipy.special import expit

from rayrank.bundle.explain import explain
from rayrank.bundle.export import load_for_serving
from rayrank.core.errors import ConfigError
from rayrank.models.inference.onnx_scorer import OnnxScorer
from rayrank.models.inference.prepare import compile_for_scoring, scoring_copy
from rayrank.models.inference.scorer import Scorer
from rayrank.serve.batching import Batcher
from rayrank.serve.config import ServeConfig
from rayrank.serve.inputs import Pair, RequestReader
from rayrank.serve.order import first_stage_order, rank
from rayrank.serve.records import Answer, Ask, Info, Load, Overloaded, Piece, Timing
from rayrank.serve.relevance import Thresholds

DTYPES = {"onnx-int8": "int8", "torch-fp8": "fp8"}
"""Precision of the backends whose precision does not depend on the device."""

CPU_BATCH_FACTOR = 2
"""On a CPU, a batch holds this many times the tokens that keep the scorer busy, or more if many requests wait. The
scorer then groups pairs of similar length, which reduces padding; a GPU packs pairs without padding."""

MAX_EXPLANATIONS = 8
"""Explanations that a replica accepts at once. Each takes seconds and counts as an ongoing request."""

EXPLANATIONS_S = 8.0
"""Seconds after which a client is to ask again for an explanation that was not accepted."""

REPLY_MARGIN_S = 0.02
"""Seconds before a deadline at which scoring ends, so that the answer reaches the client in time."""

PROBE_S = 2.0
"""Seconds that a pair may take which is scored to see whether the model is ready."""

CPU_FIRST_TOKENS = 512
"""Tokens of the first batch on a CPU, from which a replica's first waits are foreseen."""

MAX_FAILED_BATCHES = 3
"""Failed batches in a row after which the replica reports itself unhealthy, and Serve replaces it."""


class ServedModel:
    """Re-ranks passages for many clients at once; implements `Backend` except for `search`."""

    def __init__(self, config: ServeConfig) -> None:
        """Load the exported folder and score a first batch, so that compilation is over before the first request."""
        self.config = config
        self._exported = self._explained = load_for_serving(config.model, config.backend)
        self.reader = RequestReader(self._exported, config)
        # One at a time: an explanation takes as long as scoring hundreds of pairs.
        self._explainer = ThreadPoolExecutor(1, "explaining")
        self._scorer = self._open_scorer(config.batching.tokens)
        self._on_gpu = next(self._exported.model.parameters()).is_cuda
        rate = self._warm_up()
        batching, on_gpu = config.batching, self._on_gpu
        tokens = self._scorer.parallel_tokens * (1 if on_gpu else CPU_BATCH_FACTOR)
        self._batcher = Batcher(
            self._begin, tokens, batching.wait_ms / 1000, batching.queued_pairs, not on_gpu, batching.queue_s, rate
        )
        self._ready_since = time.monotonic()
        self._num_explaining = 0
        self._num_active = 0

    async def rerank(self, ask: Ask) -> Answer:
        """Return the scores and the order of the passages; raises Overloaded."""
        with self._active():
            return await self._rerank(ask)

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        """Return why a passage got its score; raises Overloaded."""
        if self._num_explaining >= MAX_EXPLANATIONS:
            raise Overloaded(EXPLANATIONS_S)
        work = asyncio.get_running_loop().run_in_executor
        self._num_explaining += 1
        try:
            with self._active():
                start, end = 0, len(passage)
                if self.reader.in_windows:
                    answer = await self._rerank(Ask(query, [passage], query_type, num_windows=1))
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
            fusion=fusion.figures() if (fusion := self._exported.fusion) and fusion.model else None,
            precision=table.model_dump() if (table := self._exported.precision) else None,
            version=version("rayrank"),
            dtype=DTYPES.get(self.config.backend) or ("bfloat16" if self._on_gpu else "float32"),
            batch_tokens=self._scorer.parallel_tokens,
            tokenisers=self.config.batching.tokenisers,
        )

    def load(self) -> Load:
        """Return what this model is busy with."""
        batcher = self._batcher
        is_ready = batcher.is_alive and not batcher.num_failed and not batcher.is_stuck(PROBE_S)
        return Load(self.config.name, batcher.num_queued, is_ready)

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        """Return the word pieces of each text, up to the model's maximum length."""
        return await self.reader.tokenise(texts, with_special)

    async def ready(self) -> bool:
        """Return whether the scorer scores: a single pair, or a batch before it that takes no longer than usual."""
        # A full queue says no more than a pair that waits: the scorer may be busy, or stuck.
        try:
            async with asyncio.timeout(PROBE_S):
                await self._batcher(self._probe.pairs, self._probe.lengths)
        except (TimeoutError, Overloaded):
            return not self._batcher.is_stuck(PROBE_S)
        except Exception:
            return False
        return True

    def check(self) -> None:
        """Raise an error if the model can no longer score."""
        if self._is_stuck():
            raise RuntimeError(f"{self.config.model} cannot score: its scorer is stuck in a batch")
        if not self._batcher.is_alive or self._batcher.num_failed >= MAX_FAILED_BATCHES:
            raise RuntimeError(f"{self.config.model} cannot score: {self._batcher.num_failed} batches in a row failed")

    async def close(self) -> None:
        """Free the scorer once all accepted requests are answered."""
        while self._num_active and not self._is_stuck():
            await asyncio.sleep(0.05)
        await asyncio.to_thread(self._batcher.close, join=not self._is_stuck())
        self.reader.close()
        self._explainer.shutdown(wait=False)

    def _is_stuck(self) -> bool:
        return self._batcher.is_stuck(self.config.batching.stuck_s)

    @contextmanager
    def _active(self) -> Iterator[None]:
        self._num_active += 1
        try:
            yield
        finally:
            self._num_active -= 1

    async def _rerank(self, ask: Ask) -> Answer:
        thresholds = Thresholds.of(ask, self._exported.precision)
        began, left = time.monotonic(), ask.seconds_left()
        # A request that waited for this replica to start has not waited in its queue.
        waited = min(ask.seconds_waited(), began - self._ready_since)
        deadline = None if left is None else began + left - min(REPLY_MARGIN_S, left / 10)
        try:
            async with asyncio.timeout(left):
                # Pairs that wait for a tokeniser thread count as queued.
                with self._batcher.reserve(len(ask.passages)):
                    inputs = await self.reader.read(ask)
        except TimeoutError:
            return Answer.unscored(ask, self.config.name, Timing(tokenise=time.monotonic() - began))
        tokenised = time.monotonic()
        # With a deadline the first stage's best passages are scored first; without one the batcher chooses the order.
        priority = None if deadline is None else inputs.parts.expand(first_stage_order(ask))
        waited += tokenised - began
        scored = await self._batcher(inputs.pairs, inputs.lengths, deadline, priority, waited)
        best = inputs.parts.best(scored.scores)
        logits = [None if part is None else scored.scores[part] for part in best]
        probabilities = self._probabilities(logits)
        ranking = rank(ask, logits, self._weight(ask), self._exported.fusion)
        kept, warnings = thresholds.select(ranking.order, logits, probabilities, self._exported.calibration is not None)
        shown = {place: best[place] for place in kept[: ask.num_windows]}
        return Answer(
            logits=logits,
            probabilities=probabilities,
            order=kept,
            num_tokens=sum(
                length for length, score in zip(inputs.lengths, scored.scores, strict=True) if score is not None
            ),
            cut=inputs.cut,
            query_cut=inputs.query_cut,
            warnings=[*inputs.warnings, *ranking.warnings, *warnings],
            fused=ranking.fused,
            windows=await self.reader.spans(ask, inputs.parts, shown, deadline),
            query_type=inputs.query_type,
            partial=None in scored.scores,
            model=self.config.name,
            timing=Timing(tokenised - began, scored.queued, scored.scoring),
            num_cached=inputs.num_cached,
        )

    def _weight(self, ask: Ask) -> float:
        own = self._exported.settings.first_stage_weight
        return own if ask.first_stage_weight is None else ask.first_stage_weight

    def _open_scorer(self, tokens: int | None) -> Scorer | OnnxScorer:
        no_texts = self.reader.texts([], [])
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

    def _warm_up(self) -> float:
        """Score a few batches, so that kernels are compiled before the first request; return the tokens per second."""
        inputs = self._probe = self.reader.read_at_once(Ask("a first query", ["a first passage"]))
        pairs = inputs.pairs * max(1, (self._scorer.tokens if self._on_gpu else CPU_FIRST_TOKENS) // inputs.lengths[0])
        if self._on_gpu:
            self._begin(pairs)()
        if not np.isfinite(self._begin(inputs.pairs)()).all():
            raise ConfigError(
                f"{self.config.model} cannot be served: its scores with backend={self.config.backend} are not finite; "
                f"export it again, or choose another backend."
            )
        # The shortest of three: on a busy machine one may take many times as long as the next.
        shortest = min(self._seconds_of(pairs) for _ in range(3))
        return len(pairs) * inputs.lengths[0] / shortest

    def _seconds_of(self, pairs: list[Pair]) -> float:
        began = time.monotonic()
        self._begin(pairs)()
        return time.monotonic() - began

    def _begin(self, pairs: list[Pair]) -> Callable[[], list[float]]:
        """Start scoring pairs on the scoring thread, and return a function that waits for the scores."""
        # The pairs of a request share one prefix array.
        prefixes = {id(prefix): prefix for prefix, _ in pairs}
        rows = {key: row for row, key in enumerate(prefixes)}
        texts = self.reader.texts(list(prefixes.values()), [passage for _, passage in pairs])
        # Kept, because a scorer that ran out of memory uses smaller batches from then on.
        self._scorer = self._scorer.with_texts(texts)
        query_rows = np.array([rows[id(prefix)] for prefix, _ in pairs])
        begin = partial(self._scorer.begin, query_rows, np.arange(len(pairs)))
        # On a CPU, torch returns when the batch is scored: start it after the scores of the last batch are returned.
        scores = begin() if self._on_gpu or self._exported.int8 is not None else lambda: begin()()
        return lambda: scores().tolist()

    def _probabilities(self, logits: Sequence[float | None]) -> list[float | None]:
        scored = [logit for logit in logits if logit is not None]
        values, calibration = np.array(scored, np.float64), self._exported.calibration
        found = iter((expit(values) if calibration is None else calibration.apply(values)).tolist())
        return [None if logit is None else next(found) for logit in logits]


def _in_whole(explanation: dict[str, Any], start: int, end: int) -> dict[str, Any]:
    """Return the explanation of a window with the positions of its pieces counted in the whole passage."""
    pieces = [
        {**piece, "start": piece["start"] + start, "end": piece["end"] + start}
        if piece["segment"] == "document"
        else piece
        for piece in explanation["pieces"]
    ]
    return {**explanation, "pieces": pieces, "window": {"start": start, "end": end}}
