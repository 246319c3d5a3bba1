"""The batcher refuses requests that would wait too long by the scorer's measured rate, and notices a stuck scorer."""

import asyncio
import time

import pytest

from rayrank.serve.batching import Batcher
from rayrank.serve.records import Overloaded
from tests.unit.serve.test_batching import Pair, Scorer, pairs_of, run

pytestmark = pytest.mark.timed


def test_a_full_queue_refuses_requests_and_estimates_when_to_retry() -> None:
    scorer = Scorer(seconds=0.2)

    async def work(batcher: Batcher[Pair]) -> None:
        await batcher(pairs_of("rate", 10), [10] * 10)
        scorer.may_go.clear()
        scorer.began.clear()
        there = asyncio.create_task(batcher(pairs_of("there", 50), [10] * 50))
        await asyncio.to_thread(scorer.began.wait)
        with pytest.raises(Overloaded) as refusal:
            await batcher(pairs_of("refused", 21), [10] * 21)
        # Thirty pairs are queued, and the scorer takes 0.2 s for ten.
        assert 0.3 < refusal.value.retry_after < 0.9
        fits = asyncio.create_task(batcher(pairs_of("fits", 20), [10] * 20))
        await asyncio.sleep(0.01)
        scorer.may_go.set()
        await asyncio.gather(there, fits)

    run(scorer, work, queued_pairs=50)


def test_an_empty_queue_accepts_a_request_of_any_size() -> None:
    async def work(batcher: Batcher[Pair]) -> None:
        assert len((await batcher(pairs_of("long", 100), [10] * 100)).scores) == 100

    run(Scorer(), work, queued_pairs=5)


def test_reserved_pairs_count_as_queued() -> None:
    async def work(batcher: Batcher[Pair]) -> None:
        with batcher.reserve(60):
            for num_pairs in (1, 100):
                with pytest.raises(Overloaded), batcher.reserve(num_pairs):
                    raise AssertionError
            with pytest.raises(Overloaded):
                await batcher(pairs_of("refused", 1), [10])
        with batcher.reserve(30), batcher.reserve(20):
            pass
        assert len((await batcher(pairs_of("fits", 60), [10] * 60)).scores) == 60

    run(Scorer(), work, queued_pairs=50)


def test_a_batch_that_takes_much_longer_than_usual_means_a_stuck_scorer() -> None:
    scorer = Scorer(seconds=0.01)

    async def work(batcher: Batcher[Pair]) -> None:
        assert not batcher.is_stuck(0.05)
        await batcher(pairs_of("usual", 10), [10] * 10)
        assert not batcher.is_stuck(0.05)
        scorer.may_go.clear()
        waiting = asyncio.create_task(batcher(pairs_of("stuck", 1), [10]))
        await asyncio.sleep(0.03)
        assert not batcher.is_stuck(0.05)
        await asyncio.sleep(0.03)
        assert batcher.is_stuck(0.05)
        scorer.may_go.set()
        await waiting
        assert not batcher.is_stuck(0.05)

    run(scorer, work)


def test_slow_batches_of_a_slow_scorer_are_not_stuck() -> None:
    scorer = Scorer(seconds=0.1)

    async def work(batcher: Batcher[Pair]) -> None:
        for name in ("first", "second"):
            asked = asyncio.create_task(batcher(pairs_of(name, 10), [10] * 10))
            await asyncio.sleep(0.08)
            assert not batcher.is_stuck(0.03)
            await asked

    run(scorer, work)


def test_a_request_that_would_wait_too_long_is_refused_unless_it_has_a_deadline_or_passes_the_others() -> None:
    scorer = Scorer(seconds=0.1)

    async def work(batcher: Batcher[Pair]) -> None:
        # 100 tokens in 0.1 s: the queued request of 1,000 tokens needs a second.
        await batcher(pairs_of("measured", 10), [10] * 10)
        scorer.may_go.clear()
        queued = [asyncio.create_task(batcher(pairs_of(name, 100), [10] * 100)) for name in ("first", "second")]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded) as refusal:
            await batcher(pairs_of("too late", 200), [10] * 200)
        assert 0 < refusal.value.retry_after < 3
        with pytest.raises(Overloaded):
            await batcher(pairs_of("has waited outside", 90), [10] * 90, waited=1.2)
        short = asyncio.create_task(batcher(pairs_of("short", 1), [10]))
        hurried = asyncio.create_task(batcher(pairs_of("hurried", 200), [10] * 200, time.monotonic() + 0.1))
        assert (await hurried).scores == [None] * 200
        scorer.seconds = 0.0
        scorer.may_go.set()
        assert (await short).scores == [0]
        assert [len((await each).scores) for each in queued] == [100, 100]

    run(scorer, work, longest_wait=1.5)


def test_the_rate_of_the_warm_up_foresees_the_waits_of_the_first_requests() -> None:
    scorer = Scorer()
    scorer.may_go.clear()

    async def work(batcher: Batcher[Pair]) -> None:
        queued = [asyncio.create_task(batcher(pairs_of(name, 100), [10] * 100)) for name in ("first", "second")]
        await asyncio.sleep(0.05)
        with pytest.raises(Overloaded):
            await batcher(pairs_of("too late", 100), [10] * 100)
        scorer.may_go.set()
        await asyncio.gather(*queued)

    run(scorer, work, longest_wait=1.5, rate=1000.0)


def test_small_batches_do_not_lengthen_the_foreseen_waits() -> None:
    scorer = Scorer(seconds=0.01)

    async def work(batcher: Batcher[Pair]) -> None:
        for _ in range(30):
            await batcher(pairs_of("probe", 1), [1])
        scorer.may_go.clear()
        queued = [asyncio.create_task(batcher(pairs_of(name, 100), [10] * 100)) for name in ("first", "second")]
        await asyncio.sleep(0.05)
        scorer.seconds = 0.0
        scorer.may_go.set()
        assert [len(each.scores) for each in await asyncio.gather(*queued)] == [100, 100]

    # By the probes, the second request would wait for 1,000 tokens at 100 a second.
    run(scorer, work, longest_wait=1.5, rate=10_000.0)


def test_small_batches_show_that_the_scorer_is_faster_than_the_warm_up_told() -> None:
    scorer = Scorer()

    async def work(batcher: Batcher[Pair]) -> None:
        for _ in range(30):
            await batcher(pairs_of("small", 1), [1])
        scorer.may_go.clear()
        queued = [asyncio.create_task(batcher(pairs_of(name, 10), [1] * 10)) for name in ("first", "second", "third")]
        await asyncio.sleep(0.05)
        scorer.may_go.set()
        assert [len(each.scores) for each in await asyncio.gather(*queued)] == [10, 10, 10]

    # By the warm-up, the third request would wait for 20 tokens at 1 a second.
    run(scorer, work, longest_wait=1.5, rate=1.0)
