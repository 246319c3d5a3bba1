"""Requests share a scorer: every pair is scored once, and its score is returned at its position."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rayrank.serve.batching import Batcher, Scored

pytestmark = pytest.mark.timed

Pair = tuple[str, int]


class Scorer:
    """Scores each pair by its number, records its batches, and can be blocked by a test."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.batches: list[list[Pair]] = []
        self.seconds = seconds
        self.wrong = float("nan")
        self.may_go = threading.Event()
        self.may_go.set()
        self.began = threading.Event()

    def __call__(self, pairs: list[Pair]) -> list[float]:
        self.batches.append(pairs)
        self.began.set()
        self.may_go.wait()
        time.sleep(self.seconds)
        if any(name == "broken" for name, _ in pairs):
            raise ValueError("broken")
        return [self.wrong if name == "damaged" else float(number) for name, number in pairs]


def pairs_of(name: str, count: int) -> list[Pair]:
    return [(name, number) for number in range(count)]


def run(scorer: Scorer, work: Callable[[Batcher[Pair]], Coroutine[Any, Any, None]], **options: Any) -> None:
    batcher = Batcher(lambda pairs: partial(scorer, pairs), **{"tokens": 100, **options})
    try:
        asyncio.run(work(batcher))
    finally:
        scorer.may_go.set()
        batcher.close()


async def send_while_scoring(
    scorer: Scorer, batcher: Batcher[Pair], first: tuple[str, list[int]], *others: tuple[str, list[int]]
) -> None:
    """Send the other requests, each a name and lengths, while the first one is being scored."""
    scorer.may_go.clear()
    asked = []
    for name, lengths in (first, *others):
        asked.append(asyncio.create_task(batcher(pairs_of(name, len(lengths)), lengths)))
        await asyncio.to_thread(scorer.began.wait)
    await asyncio.sleep(0.01)
    scorer.may_go.set()
    await asyncio.gather(*asked)


@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(st.tuples(st.lists(st.integers(1, 60), max_size=30), st.booleans()), max_size=8),
    tokens=st.integers(1, 200),
    wait=st.sampled_from([0.0, 0.001]),
)
def test_every_pair_is_scored_once_and_its_score_is_at_its_position(
    requests: list[tuple[list[int], bool]], tokens: int, wait: float
) -> None:
    scorer = Scorer()

    async def ask(batcher: Batcher[Pair], row: int, lengths: list[int], later: bool) -> None:
        if later:
            await asyncio.sleep(0.002)
        found = await batcher(pairs_of(str(row), len(lengths)), lengths)
        assert found.scores == list(range(len(lengths)))

    async def work(batcher: Batcher[Pair]) -> None:
        await asyncio.gather(*(ask(batcher, row, *request) for row, request in enumerate(requests)))

    run(scorer, work, tokens=tokens, wait=wait)
    seen = [pair for batch in scorer.batches for pair in batch]
    assert sorted(seen) == sorted((str(row), place) for row, (lengths, _) in enumerate(requests)
                                  for place in range(len(lengths)))  # fmt: skip
    for batch in scorer.batches:
        used = sum(requests[int(name)][0][place] for name, place in batch)
        assert used <= tokens or len(batch) == 1


def test_a_short_request_does_not_wait_behind_a_long_one() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        await send_while_scoring(scorer, batcher, ("long", [10] * 1000), ("short", [10] * 10))

    run(scorer, work)
    # Two batches of the long request are already in flight when the short request arrives.
    assert [sum(name == "short" for name, _ in batch) for batch in scorer.batches[:4]] == [0, 0, 10, 0]
    assert len(scorer.batches) == 101


def test_requests_of_equal_size_end_in_the_order_of_arrival() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        await send_while_scoring(scorer, batcher, *((name, [10] * 20) for name in "abc"))

    run(scorer, work)
    assert ["".join(sorted({name for name, _ in batch})) for batch in scorer.batches] == ["a", "a", "b", "b", "c", "c"]


def test_a_long_request_is_not_starved_by_a_stream_of_short_ones() -> None:
    scorer = Scorer(seconds=0.002)

    async def work(batcher: Batcher[Pair]) -> None:
        long = asyncio.create_task(batcher(pairs_of("long", 100), [10] * 100))

        async def keep_asking() -> None:
            while not long.done():
                await batcher(pairs_of("short", 10), [10] * 10)

        await asyncio.gather(*(keep_asking() for _ in range(3)))

    run(scorer, work)
    of_long = [sum(name == "long" for name, _ in batch) for batch in scorer.batches]
    assert sum(of_long) == 100
    assert len(scorer.batches) < 60


def test_requests_that_arrive_within_the_wait_share_a_batch() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        first = asyncio.create_task(batcher(pairs_of("first", 2), [10, 10]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher(pairs_of("second", 2), [10, 10]))
        await asyncio.gather(first, second)

    run(scorer, work, wait=0.2)
    assert len(scorer.batches) == 1


@pytest.mark.parametrize(("sizes", "grows"), [([10] * 20, True), ([200], False)], ids=["many requests", "a long one"])
def test_batches_grow_with_the_number_of_requests_not_with_their_length(sizes: list[int], grows: bool) -> None:
    scorer = Scorer(seconds=0.001)

    async def work(batcher: Batcher[Pair]) -> None:
        await send_while_scoring(
            scorer, batcher, ("first", [10]), *((str(row), [10] * size) for row, size in enumerate(sizes))
        )

    run(scorer, work, grows=True)
    found = [len(batch) for batch in scorer.batches[1:]]
    assert 10 < max(found) <= 50 if grows else max(found) == 10


def test_a_full_batch_is_started_without_waiting() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        began = time.monotonic()
        await batcher(pairs_of("full", 10), [10] * 10)
        assert time.monotonic() - began < 1

    run(scorer, work, wait=5)


def test_pairs_of_similar_length_are_scored_together() -> None:
    scorer = Scorer()
    lengths = [10, 40, 20] * 4

    async def work(batcher: Batcher[Pair]) -> None:
        await send_while_scoring(scorer, batcher, ("first", [1]), ("one", lengths), ("other", lengths))

    run(scorer, work, tokens=80)
    # The short pairs of both requests share a batch.
    sizes = [{lengths[place] for _, place in batch} for batch in scorer.batches[1:]]
    assert sizes == [{40}, {40}, {20}, {10}, {40}, {40}, {20}]


def test_at_the_deadline_the_scores_so_far_are_returned_and_scoring_stops() -> None:
    scorer = Scorer(seconds=0.02)

    async def work(batcher: Batcher[Pair]) -> None:
        began = time.monotonic()
        found = await batcher(pairs_of("some", 1000), [10] * 1000, began + 0.15, priority=range(999, -1, -1))
        assert time.monotonic() - began < 1.0  # scoring all pairs would take two seconds
        scored = [place for place, score in enumerate(found.scores) if score is not None]
        # The scored pairs are the first ones in the order of priority.
        assert scored == list(range(1000 - len(scored), 1000))
        assert 0 < len(scored) < 200
        at_the_end = len(scorer.batches)
        await asyncio.sleep(0.1)
        assert len(scorer.batches) <= at_the_end + 1

    run(scorer, work)


def test_a_deadline_that_has_passed_scores_nothing() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        found = await batcher(pairs_of("late", 3), [10] * 3, time.monotonic() - 1)
        assert found.scores == [None] * 3

    run(scorer, work)
    assert scorer.batches == []


def test_a_near_deadline_makes_the_batch_smaller() -> None:
    scorer = Scorer(seconds=0.1)

    async def work(batcher: Batcher[Pair]) -> None:
        await batcher(pairs_of("before", 10), [10] * 10)
        found = await batcher(pairs_of("soon", 10), [10] * 10, time.monotonic() + 0.05, priority=range(10))
        assert found.scores == [None] * 10

    run(scorer, work)
    # The scorer takes 0.1 s for 100 tokens, so that about 50 tokens fit into 0.05 s.
    assert 3 <= len(scorer.batches[1]) <= 5


def test_the_pairs_of_a_client_that_disconnects_leave_the_queue() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        scorer.may_go.clear()
        gone = asyncio.create_task(batcher(pairs_of("gone", 1000), [10] * 1000))
        await asyncio.to_thread(scorer.began.wait)
        stays = asyncio.create_task(batcher(pairs_of("stays", 30), [10] * 30))
        await asyncio.sleep(0.01)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        scorer.may_go.set()
        assert (await stays).scores == list(range(30))

    run(scorer, work)
    assert [sum(name == "gone" for name, _ in batch) for batch in scorer.batches] == [10, 10, 0, 0, 0]


def test_queueing_time_ends_when_the_batch_before_is_scored() -> None:
    async def work(batcher: Batcher[Pair]) -> None:
        first, second = await asyncio.gather(*(batcher(pairs_of(name, 10), [10] * 10) for name in ("one", "two")))
        assert (first.queued, first.scoring) == pytest.approx((0.0, 1.0), abs=0.45)
        assert (second.queued, second.scoring) == pytest.approx((1.0, 1.0), abs=0.45)

    run(Scorer(seconds=1.0), work)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_batch_with_a_score_that_is_not_finite_has_failed(wrong: float) -> None:
    async def work(batcher: Batcher[Pair]) -> None:
        with pytest.raises(ArithmeticError, match="1 of the 3 scores of a batch are not finite"):
            await batcher([("a", 1), ("a", 2), ("damaged", 3)], [10] * 3)
        assert batcher.num_failed == 1
        assert (await batcher(pairs_of("after", 2), [10] * 2)).scores == [0.0, 1.0]
        assert batcher.num_failed == 0

    scorer = Scorer()
    scorer.wrong = wrong
    run(scorer, work)


def test_queueing_time_ends_when_the_batch_before_has_failed() -> None:
    async def work(batcher: Batcher[Pair]) -> None:
        asked = (batcher(pairs_of(name, 10), [10] * 10) for name in ("broken", "after"))
        broken, found = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(broken, ValueError)
        assert isinstance(found, Scored)
        assert (found.queued, found.scoring) == pytest.approx((1.0, 1.0), abs=0.45)

    run(Scorer(seconds=1.0), work)


def test_an_error_of_the_scorer_fails_only_the_requests_of_its_batch() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        scorer.may_go.clear()
        before = asyncio.create_task(batcher(pairs_of("before", 10), [10] * 10))
        await asyncio.to_thread(scorer.began.wait)
        broken = asyncio.create_task(batcher(pairs_of("broken", 30), [10] * 30))
        await asyncio.sleep(0.01)
        scorer.may_go.set()
        with pytest.raises(ValueError, match="broken"):
            await broken
        # The first of its batches failed, and the second one too if it was already in flight.
        assert batcher.num_failed in (1, 2)
        assert (await before).scores == list(range(10))
        assert (await batcher(pairs_of("after", 2), [10] * 2)).scores == [0, 1]
        assert (batcher.num_failed, batcher.num_queued) == (0, 0)

    run(scorer, work)
    assert [batch[0][0] for batch in scorer.batches] == ["before", "broken", "broken", "after"]


@pytest.mark.parametrize(("waiting", "in_flight"), [(25, 2), (10, 2), (9, 1)])
def test_a_second_batch_is_started_early_only_if_it_is_full(waiting: int, in_flight: int) -> None:
    begun, may_end = [], threading.Event()

    def begin(pairs: list[Pair]) -> Callable[[], list[float]]:
        begun.append(pairs)
        return lambda: [float(number) for _, number in pairs] if may_end.wait() else []

    async def work() -> None:
        first = asyncio.create_task(batcher(pairs_of("first", 10 + waiting), [10] * (10 + waiting)))
        await asyncio.sleep(0.05)
        assert [len(batch) for batch in begun] == [10] * in_flight
        may_end.set()
        assert (await first).scores == list(range(10 + waiting))

    batcher = Batcher(begin, tokens=100)
    try:
        asyncio.run(work())
    finally:
        may_end.set()
        batcher.close()
