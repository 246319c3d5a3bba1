"""One scorer for many clients: the pairs of their requests are scored together, in batches of a token budget.

`fair_queue` decides which pairs make up a batch. While enough pairs wait, the scorer gets its next batch before it has
finished the current one, so that it is never idle between two batches.
"""

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Generic, NamedTuple

from rayrank.serve.fair_queue import Batch, FairQueue, Pair, QueuedRequest
from rayrank.serve.records import Overloaded

RATE_SMOOTHING = 0.2
"""Weight of the latest batch in the moving average of the scorer's tokens per second."""

SLOW_FACTOR = 10
"""A scorer is stuck only after this many times the duration that its measured rate predicts for the batch."""

MEASURED_SHARE = 1 / 8
"""A batch lowers the measured rate only if it has at least this share of the token budget of a batch: the duration of a
smaller one consists mostly of fixed costs."""

UNMEASURED_FACTOR = 4
"""The first batches, whose duration cannot be foreseen, may take this many times as long as others."""

StartBatch = Callable[[list[Pair]], Callable[[], Sequence[float]]]
"""Starts to score the pairs of a batch, and returns a function that waits for their scores."""


class Scored(NamedTuple):
    """The scores of one request's pairs, and where its time went."""

    scores: list[float | None]
    """In the caller's order; None for a pair that was not scored before the deadline."""
    queued: float
    """Seconds until the scorer started on the request's first pair."""
    scoring: float
    """Seconds from then to the end of the request."""


class _InFlight(NamedTuple, Generic[Pair]):
    """A batch that was handed to the scorer."""

    batch: Batch[Pair]
    tokens: int
    started: float
    wait_for_scores: Callable[[], Sequence[float]]


class Batcher(Generic[Pair]):
    """Runs a scorer on its own thread, batch after batch, as long as requests are waiting."""

    def __init__(
        self, start: StartBatch[Pair], tokens: int, wait: float = 0.0, queued_pairs: int = 20_000, grows: bool = False,
        longest_wait: float = float("inf"), rate: float = 0.0,
    ) -> None:  # fmt: skip
        """Take the scorer, the token budget of a batch, the seconds that an idle scorer waits for more requests, the
        pairs that may be queued, whether batches grow with the number of waiting requests, the seconds that a request
        may have to wait, and the scorer's tokens per second until they are measured, 0 if unknown."""
        self._start_batch, self._wait, self._longest_wait = start, wait, longest_wait
        self._queue: FairQueue[Pair] = FairQueue(tokens, queued_pairs, grows)
        self._changed = threading.Condition()
        """Guards the queue, and wakes the scoring thread."""
        self._rate, self._measured_tokens = rate, tokens * MEASURED_SHARE
        """Tokens per second, as a moving average, and the smallest batch that may lower it."""
        self._last_end = 0.0
        self._in_flight: deque[_InFlight[Pair]] = deque()
        """The batch that is being scored, and at most one that waits behind it."""
        self._closed = False
        self._busy: tuple[float, int] | None = None
        """Since when the scorer works on a batch, and the tokens of this batch; None while it is idle."""
        self.num_failed = 0
        """Batches that failed since the last one that was scored."""
        self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)
        self._thread.start()

    async def __call__(
        self, pairs: Sequence[Pair], lengths: Sequence[int], deadline: float | None = None,
        priority: Sequence[int] | None = None, waited: float = 0.0,
    ) -> Scored:  # fmt: skip
        """Return the scores of the pairs, or those there are at `deadline`, a time of the monotonic clock.

        Pairs are scored in the order of `priority`, a list of positions; without it, together with pairs of similar
        length. Raises Overloaded if a request without a deadline, which has `waited` already, would wait too long.
        """
        if not pairs:
            return Scored([], 0.0, 0.0)
        order = sorted(range(len(pairs)), key=lengths.__getitem__) if priority is None else list(priority)[::-1]
        now = time.monotonic()
        request = QueuedRequest(
            pairs, lengths, order, urgent=priority is not None, arrived=now, tokens=sum(lengths),
            deadline=float("inf") if deadline is None else deadline, scores=[None] * len(pairs),
            num_unscored=len(pairs),
        )  # fmt: skip
        self._add(request, waited)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.wrap_future(request.done), None if deadline is None else max(0.0, deadline - now)
                )
        finally:
            # After the deadline, or when the client has disconnected, nobody needs the remaining scores.
            with self._changed:
                self._queue.remove(request)
        ended = time.monotonic()
        started = request.started or ended
        return Scored(list(request.scores), started - now, ended - started)

    @contextmanager
    def reserve(self, num_pairs: int) -> Iterator[None]:
        """Count pairs as queued while they are tokenised; raises Overloaded if the queue has no room for them."""
        with self._changed:
            self._check_room(num_pairs)
            self._queue.num_reserved += num_pairs
        try:
            yield
        finally:
            with self._changed:
                self._queue.num_reserved -= num_pairs

    def close(self, join: bool = True) -> None:
        """Score the queued pairs and end the thread, which `join` waits for; later requests raise an error."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if join:
            self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the scoring thread is running."""
        return self._thread.is_alive()

    def is_stuck(self, seconds: float) -> bool:
        """Whether the scorer has worked on one batch for longer than `seconds`, and for much longer than is usual."""
        if (busy := self._busy) is None:
            return False
        since, tokens = busy
        is_measured = self._rate and self._last_end
        allowed = max(seconds, SLOW_FACTOR * tokens / self._rate) if is_measured else UNMEASURED_FACTOR * seconds
        return time.monotonic() - since > allowed

    @property
    def num_queued(self) -> int:
        """Pairs that no batch has taken yet."""
        return self._queue.num_pairs

    def _add(self, request: QueuedRequest[Pair], waited: float) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher was closed")
            self._check_room(len(request.pairs))
            self._check_wait(request, waited)
            self._queue.add(request)
            self._changed.notify()

    def _check_room(self, num_pairs: int) -> None:
        if not self._queue.has_room(num_pairs):
            raise Overloaded(self._queue.num_tokens / self._rate if self._rate else 1.0)

    def _check_wait(self, request: QueuedRequest[Pair], waited: float) -> None:
        # A request with a deadline says itself how long it waits.
        if self._rate and request.deadline == float("inf"):
            seconds = self._queue.tokens_before(request) / self._rate
            if seconds and waited + seconds > self._longest_wait:
                raise Overloaded(waited + seconds - self._longest_wait)

    def _work(self) -> None:
        while (batch := self._next_batch()) or self._in_flight:
            if batch:
                self._start(batch)
            if self._in_flight and (not batch or len(self._in_flight) > 1):
                self._finish(self._in_flight.popleft())

    def _start(self, batch: Batch[Pair]) -> None:
        started = time.monotonic()
        if not self._in_flight:
            _mark_started(batch, started)
        tokens = sum(request.lengths[place] for request, place in batch)
        self._busy = started, tokens
        try:
            wait_for_scores = self._start_batch([request.pairs[place] for request, place in batch])
        except BaseException as error:
            self._fail(batch, error)
            return
        finally:
            self._busy = None
        self._in_flight.append(_InFlight(batch, tokens, started, wait_for_scores))

    def _finish(self, done: _InFlight[Pair]) -> None:
        started = max(done.started, self._last_end)
        self._busy = time.monotonic(), done.tokens
        try:
            scores = _finite(done.wait_for_scores())
        except BaseException as error:
            self._fail(done.batch, error)
            return
        finally:
            self._busy, self._last_end = None, time.monotonic()
            if self._in_flight:
                _mark_started(self._in_flight[0].batch, self._last_end)
        self.num_failed = 0
        rate = done.tokens / max(self._last_end - started, 1e-6)
        if not self._rate:
            self._rate = rate
        elif done.tokens >= self._measured_tokens or rate > self._rate:
            self._rate += RATE_SMOOTHING * (rate - self._rate)
        for (request, place), score in zip(done.batch, scores, strict=True):
            request.scores[place] = float(score)
            request.num_unscored -= 1
            if not request.num_unscored:
                _resolve(request.done, None)

    def _next_batch(self) -> Batch[Pair]:
        """Wait for the next batch; an empty one means that the batcher was closed, or that the scorer is still busy
        and too few pairs wait for another batch."""
        with self._changed:
            while True:
                now = time.monotonic()
                self._queue.remove_ended(now)
                is_full = self._queue.fills_a_batch
                if self._in_flight and not is_full:
                    return []
                if self._queue:
                    due = self._queue.oldest_arrival + self._wait
                    if now >= due or self._closed or is_full:
                        tokens_ahead = sum(batch.tokens for batch in self._in_flight)
                        return self._queue.take(self._queue.budget(now, self._rate, tokens_ahead))
                    self._changed.wait(due - now)
                elif self._closed:
                    return []
                else:
                    self._changed.wait()

    def _fail(self, batch: Batch[Pair], error: BaseException) -> None:
        """Hand an error of any kind to the requests of its batch, and keep the thread running for all others."""
        self.num_failed += 1
        for request in {id(request): request for request, _ in batch}.values():
            with self._changed:
                self._queue.remove(request)
            _resolve(request.done, error)


def _finite(scores: Sequence[float]) -> Sequence[float]:
    """Return the scores of a batch; raise an error if weights or a reduced precision made some that rank nothing."""
    if num_wrong := sum(not math.isfinite(score) for score in scores):
        raise ArithmeticError(f"{num_wrong} of the {len(scores)} scores of a batch are not finite")
    return scores


def _mark_started(batch: Batch[Pair], now: float) -> None:
    for request, _ in batch:
        request.started = request.started or now


def _resolve(done: "Future[None]", error: BaseException | None) -> None:
    """Wake the client, unless it has disconnected or already got the error of another of its batches."""
    if done.done() or not done.set_running_or_notify_cancel():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
