"""The queue in front of the scorer: which pairs of the waiting requests make up the next batch.

Requests are served by fair queueing. Each one is scored as a whole, in the order in which the requests would end if
all of them shared the scorer equally. No request ends much later than under equal shares, and most end sooner.
"""

from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Pair = TypeVar("Pair")

MIN_BUDGET_SHARE = 1 / 8
"""A near deadline shrinks a batch to no less than this share of the token budget: one client's deadline must not slow
down all other clients."""

REQUESTS_PER_BUDGET = 4
"""A growing batch holds one token budget for every four waiting requests."""

MAX_BATCH_S = 0.25
"""Seconds of scoring that a growing batch may hold: a short request that arrives meanwhile waits for this batch, and
for the one before it."""


@dataclass(eq=False)
class QueuedRequest(Generic[Pair]):
    """The pairs of one client's request, and the scores that they have so far."""

    pairs: Sequence[Pair]
    lengths: Sequence[int]
    """The number of tokens of each pair."""
    order: list[int]
    """Positions of the pairs that no batch has taken yet: sorted by length, or with the most urgent pair last."""
    urgent: bool
    """Whether pairs are taken from the end of `order`, instead of together with pairs of similar length."""
    deadline: float
    arrived: float
    scores: list[float | None]
    num_unscored: int
    tokens: int
    """Tokens of the pairs that no batch has taken yet."""
    virtual_end: float = 0.0
    """The queue's virtual time at which the request would end under equal shares; the smallest is served first."""
    started: float = 0.0
    """When the scorer started on the request's first pair; 0 before that."""
    done: "Future[None]" = field(default_factory=Future)

    def next_pair(self, max_length: int | None) -> int:
        """Return the index in `order` of the pair to take next: the longest one of at most `max_length` tokens."""
        if self.urgent or max_length is None:
            return len(self.order) - 1
        return max(0, bisect_right(self.order, max_length, key=self.lengths.__getitem__) - 1)


Batch = list[tuple[QueuedRequest[Pair], int]]
"""Pairs, each as its request and its position in that request."""


class FairQueue(Generic[Pair]):
    """The waiting requests; the batcher that owns the queue guards it by a lock."""

    def __init__(self, tokens: int, max_pairs: int, grows: bool) -> None:
        """Take the token budget of a batch, the pairs that may wait, and whether batches grow with the queue."""
        self._tokens, self._max_pairs, self._grows = tokens, max_pairs, grows
        self._requests: list[QueuedRequest[Pair]] = []
        self._virtual_time = 0.0
        """Tokens that equal shares would have given by now to a request that was always in the queue."""
        self.num_reserved = 0
        """Pairs that are still being tokenised and will be added soon."""

    def __bool__(self) -> bool:
        return bool(self._requests)

    @property
    def num_pairs(self) -> int:
        """Pairs that no batch has taken yet."""
        return sum(len(request.order) for request in self._requests)

    @property
    def num_tokens(self) -> int:
        """Tokens of the pairs that no batch has taken yet."""
        return sum(request.tokens for request in self._requests)

    @property
    def fills_a_batch(self) -> bool:
        """Whether the waiting pairs reach the token budget."""
        return self.num_tokens >= self._tokens

    @property
    def oldest_arrival(self) -> float:
        """When the request that waits longest arrived."""
        return min(request.arrived for request in self._requests)

    def has_room(self, num_pairs: int) -> bool:
        """Return whether `num_pairs` more may be added; an empty queue takes a request of any size."""
        queued = self.num_pairs + self.num_reserved
        return not queued or queued + num_pairs <= self._max_pairs

    def tokens_before(self, request: QueuedRequest[Pair]) -> int:
        """Return the queued tokens that would be scored before the last ones of a request that is not in the queue."""
        end = self._virtual_time + request.tokens
        return sum(other.tokens for other in self._requests if other.virtual_end <= end)

    def add(self, request: QueuedRequest[Pair]) -> None:
        """Put a request into the queue."""
        request.virtual_end = self._virtual_time + request.tokens
        self._requests.append(request)

    def remove(self, request: QueuedRequest[Pair]) -> None:
        """Give up the pairs of a request that no batch has taken yet."""
        request.order.clear()
        request.tokens = 0
        if request in self._requests:
            self._requests.remove(request)

    def remove_ended(self, now: float) -> None:
        """Remove requests whose pairs are all in batches, or whose deadline has passed."""
        self._requests = [request for request in self._requests if request.order and request.deadline > now]

    def budget(self, now: float, rate: float, tokens_ahead: int) -> float:
        """Return the tokens to take: more if many requests wait, fewer if a request's deadline would pass before the
        batch is scored.

        `rate` is the scorer's tokens per second, or 0 if unknown; it has `tokens_ahead` to score before this batch.
        """
        soonest = min(request.deadline for request in self._requests) - now
        in_time = soonest * rate - tokens_ahead if rate else float("inf")
        grown = min(self._tokens * len(self._requests) / REQUESTS_PER_BUDGET, rate * MAX_BATCH_S)
        budget = max(self._tokens, grown) if self._grows else self._tokens
        return min(budget, max(self._tokens * MIN_BUDGET_SHARE, in_time))

    def take(self, budget: float) -> Batch[Pair]:
        """Return the next batch: pairs of one request after another, up to the token budget, at least one pair."""
        batch: Batch[Pair] = []
        taken, first_length = 0, None
        for request in sorted(self._requests, key=lambda request: request.virtual_end):
            while request.order:
                at = request.next_pair(first_length)
                length = request.lengths[request.order[at]]
                if batch and taken + length > budget:
                    break
                batch.append((request, request.order.pop(at)))
                # All requests give pairs about as long as the batch's first pair, which keeps padding low.
                first_length = first_length or length
                taken += length
                request.tokens -= length
            if request.order:
                break
        self._virtual_time += taken / len(self._requests)
        return batch
