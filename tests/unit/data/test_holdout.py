"""Dev splits held out of train."""

import hashlib

import pytest

from rayrank.core.records import Judgment, Query
from rayrank.data.holdout import MOST, HeldOut, hold_out, keep_some


def _judged(queries: list[Query]) -> list[Judgment]:
    return [Judgment(query.query_id, "p", 1, query.split) for query in queries]


def _train(count: int, groups: int = 0) -> list[Query]:
    return [
        Query(f"q{row}", f"text {row}", "train", group=f"g{row % groups}" if groups else "") for row in range(count)
    ]


def _dev(held_out: HeldOut) -> set[str]:
    return {query.query_id for query in held_out.queries if query.split == "dev"}


def test_a_share_of_train_becomes_dev_with_its_judgments() -> None:
    queries = [*_train(100), Query("t", "a test query", "test"), Query("u", "an unjudged query", "unjudged")]
    held_out = hold_out(queries, _judged(queries[:-1]), 0.2)
    assert held_out.num_queries == len(_dev(held_out)) == 20
    assert {row.query_id for row in held_out.judgments if row.split == "dev"} == _dev(held_out)
    assert [query.query_id for query in held_out.queries] == [query.query_id for query in queries]
    assert [query.split for query in held_out.queries[-2:]] == ["test", "unjudged"]


def test_a_dataset_with_judged_dev_queries_stays_as_it_is() -> None:
    queries = [*_train(10), Query("d", "a dev query", "dev")]
    assert hold_out(queries, _judged(queries), 0.2) == HeldOut(queries, _judged(queries), 0)


def test_nothing_is_held_out_if_the_share_is_zero() -> None:
    assert hold_out(_train(10), _judged(_train(10)), 0.0).num_queries == 0


def test_a_group_stays_together() -> None:
    queries = _train(100, groups=10)
    dev = _dev(hold_out(queries, _judged(queries), 0.2))
    groups = {query.group for query in queries if query.query_id in dev}
    assert {query.query_id for query in queries if query.group in groups} == dev


def test_queries_with_the_same_words_stay_together() -> None:
    queries = [Query(f"{mark}{row}", f"What is {row}{mark}", "train") for row in range(50) for mark in "?!"]
    dev = _dev(hold_out(queries, _judged(queries), 0.2))
    assert {f"?{name[1:]}" for name in dev} == {name for name in dev if name[0] == "?"}
    assert len(dev) == 20


@pytest.mark.parametrize("count", [2, 3, 25])
def test_a_few_queries_leave_some_in_each_split(count: int) -> None:
    held_out = hold_out(_train(count), _judged(_train(count)), 0.5)
    assert 0 < held_out.num_queries < count


def test_a_single_group_stays_in_train() -> None:
    assert hold_out(_train(5, groups=1), _judged(_train(5)), 0.2).num_queries == 0


def test_queries_that_are_added_later_keep_those_held_out_before() -> None:
    fewer = _dev(hold_out(_train(100), _judged(_train(100)), 0.2))
    more = _dev(hold_out(_train(110), _judged(_train(110)), 0.2))
    assert len(fewer & more) >= 16


def test_a_large_dataset_loses_a_thousand_queries_at_most() -> None:
    assert hold_out(_train(20_000), _judged(_train(20_000)), 0.2).num_queries == MOST


def _kept(count: int, wanted: int, seed: int = 0) -> set[str]:
    queries, judgments = keep_some(_train(count), _judged(_train(count)), wanted, seed)
    kept = {query.query_id for query in queries if query.split == "train"}
    assert {row.query_id for row in judgments} == kept
    assert len(queries) == count
    return kept


def test_some_training_queries_are_kept_and_a_larger_number_keeps_the_same_ones() -> None:
    fewer, more = _kept(100, 25), _kept(100, 50)
    assert (len(fewer), len(more)) == (25, 50)
    assert fewer < more


def test_another_seed_keeps_other_training_queries() -> None:
    assert _kept(100, 25) != _kept(100, 25, seed=1)


def test_a_number_above_that_of_the_training_queries_keeps_all() -> None:
    assert len(_kept(10, 100)) == 10


def test_queries_of_other_splits_keep_their_judgments() -> None:
    others = [Query("d", "a dev query", "dev"), Query("u", "an unjudged query", "unjudged")]
    queries, judgments = keep_some([*_train(10), *others], _judged([*_train(10), others[0]]), 2, 0)
    assert queries[-2:] == others
    assert judgments[-1].query_id == "d"


def test_at_least_one_of_few_training_queries_is_held_out() -> None:
    assert hold_out(_train(2), _judged(_train(2)), 0.2).num_queries == 1
    assert hold_out(_train(1), _judged(_train(1)), 0.2).num_queries == 0


def test_a_group_of_most_training_queries_stays_in_train() -> None:
    queries = [query._replace(group="large" if row < 900 else "") for row, query in enumerate(_train(1000))]
    dev = hold_out(queries, _judged(queries), 0.2)
    assert dev.num_queries == 100
    assert all(query.split == "train" for query in dev.queries if query.group == "large")


def test_if_every_group_is_larger_than_the_share_the_smallest_is_held_out() -> None:
    # By its hash, the group b is the first.
    queries = [query._replace(group="b" if row < 60 else "a") for row, query in enumerate(_train(100))]
    dev = hold_out(queries, _judged(queries), 0.2)
    assert {query.group for query in dev.queries if query.split == "dev"} == {"a"}


@pytest.mark.parametrize("size", [2, 3])
def test_groups_of_a_few_queries_are_held_out_in_the_order_of_their_hashes(size: int) -> None:
    queries = _train(999, groups=999 // size)
    groups = sorted({query.group for query in queries}, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    dev = hold_out(queries, _judged(queries), 0.2)
    found = {query.group for query in dev.queries if query.split == "dev"}
    assert found == set(groups[: len(found)])
    assert 200 <= dev.num_queries < 200 + size
