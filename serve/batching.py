"""One scorer for many clients: their pairs join batches of a token budget, each request as soon as is fair.

Fair is what equal shares of the scorer would give: requests are served whole, in the order in which they would end if
all that wait went on at once. None ends much later than it would then, and most end sooner. While enough is waiting,
the scorer has its next batch before it is done with one.
"""

import asyncio
import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from serve.records import Overloaded

Pair = TypeVar("Pair")

SMALLEST = 8
"""A batch is made smaller for a deadline, but not below this part of the budget: one client must not slow all down."""

PART, LONGEST = 4, 0.25
"""Where it saves padding, a batch may grow with the number of requests, to a part of them, but to no more than can be
scored in so many seconds: a short request that comes meanwhile waits for it, and for the one before."""

FRESH = 0.2
"""How much of the rate that is remembered is the last batch's."""


class Scored(NamedTuple):
    """What became of a request's pairs."""

    scores: list[float | None]
    """In the caller's order; None where the deadline came first."""
    queued: float
    """Seconds before its first pair had the scorer."""
    scoring: float
    """Seconds from then to its end."""


@dataclass(eq=False)
class _Request(Generic[Pair]):
    """One client's pairs on their way through batches."""

    pairs: Sequence[Pair]
    lengths: Sequence[int]
    order: list[int]
    """Places of the pairs that no batch has taken yet, the shortest first, or the most urgent last."""
    urgent: bool
    """Whether that order counts, and not which lengths go together."""
    deadline: float
    arrived: float
    turn: float
    """The share at which it would end, had all requests equal shares; the least is served first."""
    tokens: int
    """Of the pairs that no batch has taken yet."""
    scores: list[float | None]
    missing: int
    started: float = 0.0
    """When the scorer came to the first of them."""
    done: "Future[None]" = field(default_factory=Future)

    def next(self, most: int | None) -> int:
        """Return where in `order` the next pair is: the longest of those that are not longer than `most`."""
        if self.urgent or most is None:
            return len(self.order) - 1
        return max(0, bisect_right(self.order, most, key=self.lengths.__getitem__) - 1)


Batch = list[tuple[_Request[Pair], int]]
"""Pairs as requests and places in them."""


class _UnderWay(NamedTuple, Generic[Pair]):
    """A batch that the scorer has."""

    batch: Batch[Pair]
    tokens: int
    begun: float
    scores: Callable[[], Sequence[float]]
    """Waits for them."""


class Batcher(Generic[Pair]):
    """Runs a scorer on a thread of its own, over one batch after another while there are requests."""

    def __init__(
        self, begin: Callable[[list[Pair]], Callable[[], Sequence[float]]], tokens: int, wait: float = 0.0,
        queued_pairs: int = 20_000, grows: bool = False,
    ) -> None:  # fmt: skip
        """Take what begins to score a batch and returns what waits for its scores, the token budget of a batch, and
        the seconds that an idle scorer waits for company."""
        self._begin, self._tokens, self._wait, self._limit = begin, tokens, wait, queued_pairs
        self._grows = grows
        self._waiting: list[_Request[Pair]] = []
        self._coming = 0
        """Pairs that are still being made."""
        self._changed = threading.Condition()
        self._rate = 0.0
        self._ended = 0.0
        """When the last batch was done with."""
        self._under_way: deque[_UnderWay[Pair]] = deque()
        """What the scorer has, of which one batch waits at most."""
        self._share = 0.0
        """Tokens that a request would have had by now, had it been there from the start."""
        self._closed = False
        self.num_failed = 0
        """Batches that failed one after another, up to now."""
        self._thread = threading.Thread(target=self._work, name="scoring", daemon=True)
        self._thread.start()

    async def __call__(
        self, pairs: Sequence[Pair], lengths: Sequence[int], deadline: float | None = None,
        priority: Sequence[int] | None = None,
    ) -> Scored:  # fmt: skip
        """Return scores in the caller's order; by `deadline`, on the monotonic clock, with what there is.

        Pairs are scored in the order of `priority`, or with others of their length if there is none.
        """
        if not pairs:
            return Scored([], 0.0, 0.0)
        order = sorted(range(len(pairs)), key=lengths.__getitem__) if priority is None else list(priority)[::-1]
        now = time.monotonic()
        request = _Request(
            pairs, lengths, order, urgent=priority is not None, arrived=now, turn=0.0, tokens=sum(lengths),
            deadline=float("inf") if deadline is None else deadline, scores=[None] * len(pairs), missing=len(pairs),
        )  # fmt: skip
        self._admit(request)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    asyncio.wrap_future(request.done), None if deadline is None else max(0.0, deadline - now)
                )
        finally:
            # Gone are a client that went away and what its deadline left over.
            self._drop(request)
        ended = time.monotonic()
        started = request.started or ended
        return Scored(list(request.scores), started - now, ended - started)

    @contextmanager
    def expecting(self, num_pairs: int) -> Iterator[None]:
        """Count pairs as queued while they are being made; raises Overloaded before any work is done for them."""
        with self._changed:
            self._check(num_pairs)
            self._coming += num_pairs
        try:
            yield
        finally:
            with self._changed:
                self._coming -= num_pairs

    def close(self) -> None:
        """Score what is there and end the thread; nothing can be asked for any more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the scoring thread goes on."""
        return self._thread.is_alive()

    @property
    def num_queued(self) -> int:
        """Pairs that no batch has taken yet."""
        return sum(len(request.order) for request in self._waiting)

    def _admit(self, request: _Request[Pair]) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher was closed")
            self._check(len(request.pairs))
            request.turn = self._share + request.tokens
            self._waiting.append(request)
            self._changed.notify()

    def _check(self, num_pairs: int) -> None:
        queued = self.num_queued + self._coming
        # However long a request is, an idle scorer takes it.
        if queued and queued + num_pairs > self._limit:
            raise Overloaded(self._seconds())

    def _drop(self, request: _Request[Pair]) -> None:
        with self._changed:
            request.order.clear()
            request.tokens = 0
            if request in self._waiting:
                self._waiting.remove(request)

    def _seconds(self) -> float:
        """Return how long the scorer has to do with what is there."""
        return self._num_tokens() / self._rate if self._rate else 1.0

    def _num_tokens(self) -> int:
        return sum(request.tokens for request in self._waiting)

    def _work(self) -> None:
        while (batch := self._next()) or self._under_way:
            if batch:
                self._start(batch)
            if self._under_way and (not batch or len(self._under_way) > 1):
                self._end(self._under_way.popleft())

    def _start(self, batch: "Batch[Pair]") -> None:
        begun = time.monotonic()
        if not self._under_way:
            _come_to(batch, begun)
        try:
            scores = self._begin([request.pairs[place] for request, place in batch])
        except BaseException as error:
            self._fail(batch, error)
            return
        tokens = sum(request.lengths[place] for request, place in batch)
        self._under_way.append(_UnderWay(batch, tokens, begun, scores))

    def _end(self, done: "_UnderWay[Pair]") -> None:
        begun = max(done.begun, self._ended)
        try:
            scores = done.scores()
        except BaseException as error:
            self._fail(done.batch, error)
            return
        finally:
            self._ended = time.monotonic()
            if self._under_way:
                _come_to(self._under_way[0].batch, self._ended)
        self.num_failed = 0
        rate = done.tokens / max(self._ended - begun, 1e-6)
        self._rate = rate if not self._rate else (1 - FRESH) * self._rate + FRESH * rate
        self._deliver(done.batch, scores)

    def _next(self) -> "Batch[Pair]":
        """Return the next batch when it is due: none at the end, or while the scorer has one and too little waits."""
        with self._changed:
            while True:
                now = time.monotonic()
                self._waiting = [request for request in self._waiting if request.order and request.deadline > now]
                is_full = self._num_tokens() >= self._tokens
                if self._under_way and not is_full:
                    return []
                if self._waiting:
                    due = min(request.arrived for request in self._waiting) + self._wait
                    if now >= due or self._closed or is_full:
                        return self._gather(self._budget(now))
                    self._changed.wait(due - now)
                elif self._closed:
                    return []
                else:
                    self._changed.wait()

    def _budget(self, now: float) -> float:
        """Return how many tokens to take: more if many wait, fewer if a deadline would pass before they are scored."""
        soonest = min(request.deadline for request in self._waiting) - now
        before = sum(batch.tokens for batch in self._under_way)
        in_time = soonest * self._rate - before if self._rate else float("inf")
        part = min(self._tokens * len(self._waiting) / PART, self._rate * LONGEST)
        budget = max(self._tokens, part) if self._grows else self._tokens
        return min(budget, max(self._tokens / SMALLEST, in_time))

    def _gather(self, budget: float) -> "Batch[Pair]":
        """Take request after request, up to the budget; one pair at least."""
        batch: Batch[Pair] = []
        taken, first = 0, None
        for request in sorted(self._waiting, key=lambda request: request.turn):
            while request.order:
                at = request.next(first)
                length = request.lengths[request.order[at]]
                if batch and taken + length > budget:
                    break
                batch.append((request, request.order.pop(at)))
                # All give pairs as long as the first one, as far as they have such: little is then padding.
                first = first or length
                taken += length
                request.tokens -= length
            if request.order:
                break
        self._share += taken / len(self._waiting)
        return batch

    def _deliver(self, batch: "Batch[Pair]", scores: Sequence[float]) -> None:
        for (request, place), score in zip(batch, scores, strict=True):
            request.scores[place] = float(score)
            request.missing -= 1
            if not request.missing:
                _finish(request.done, None)

    def _fail(self, batch: "Batch[Pair]", error: BaseException) -> None:
        """Whatever it is, it is these requests' trouble and nobody else's."""
        self.num_failed += 1
        for request in {id(request): request for request, _ in batch}.values():
            self._drop(request)
            _finish(request.done, error)


def _come_to(batch: Batch[Pair], now: float) -> None:
    for request, _ in batch:
        request.started = request.started or now


def _finish(done: "Future[None]", error: BaseException | None) -> None:
    """Tell the client, unless it is gone, or knows already that another of its batches failed."""
    if done.done() or not done.set_running_or_notify_cancel():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
