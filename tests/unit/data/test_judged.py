from collections.abc import Iterator

import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import DatasetError, ProblemsFound
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.judged import Judged, read_judged
from rayrank.data.problems import Problems
from rayrank.data.sources.source import Part, Source

SKIP = dict.fromkeys(("on_error", "on_duplicate", "on_empty", "on_unknown", "on_shared"), "skip")


class Listed(Source):
    """A source whose queries and judgments were written down in a test."""

    def __init__(self, queries: list[Query | Malformed], judgments: list[Judgment | Malformed]) -> None:
        self._queries, self._judgments = queries, judgments

    def files(self) -> list[str]:
        return []

    def parts(self, part_bytes: int) -> list[Part]:
        return []

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        yield from ()

    def queries(self) -> Iterator[Query | Malformed]:
        yield from self._queries

    def judgments(self) -> Iterator[Judgment | Malformed]:
        yield from self._judgments


def read(
    queries: list[Query | Malformed],
    judgments: list[Judgment | Malformed],
    types: dict[str, str] | None = None,
    **settings: str | int,
) -> tuple[Judged, dict[str, int]]:
    dataset = DatasetConfig.model_validate({"source": "mine", "holdout": 0.0, **settings})
    problems = Problems(dataset)
    judged = read_judged(Listed(queries, judgments), dataset, problems, types or {})
    return judged, {kind: entry["count"] for kind, entry in problems.report().items()}


def splits(judged: Judged) -> dict[str, str]:
    return {query.query_id: query.split for query in judged.queries}


def test_a_source_without_problems_is_read_completely_and_in_order() -> None:
    queries = [Query("2", "two", query_type="person"), Query("1", "one")]
    judgments = [Judgment("1", "p", 1, "dev"), Judgment("2", "p", 0, "train"), Judgment("1", "q", 2, "dev")]
    judged, problems = read(queries, judgments)
    assert judged.queries == [Query("2", "two", "train", "person"), Query("1", "one", "dev")]
    assert judged.judgments == judgments
    assert problems == {}


def test_a_query_without_a_split_is_unjudged() -> None:
    judged, problems = read([Query("1", "one"), Query("2", "two")], [Judgment("1", "p", 1, "dev")])
    assert splits(judged) == {"1": "dev", "2": "unjudged"}
    assert problems == {}


def test_a_query_of_a_split_stays_there_without_judgments() -> None:
    judged, _ = read([Query("1", "one", "dev"), Query("2", "two", "test")], [Judgment("1", "p", 1, "dev")])
    assert splits(judged) == {"1": "dev", "2": "test"}


@pytest.mark.parametrize(
    ("claims", "kept"),
    [
        (("train", "dev", "test"), "test"),
        (("train", "test"), "test"),
        (("train", "dev"), "dev"),
        (("dev", "test"), "test"),
        (("train", "extra"), "train"),
        (("extra", "additional"), "additional"),
    ],
)
def test_a_shared_query_stays_in_test_then_dev_then_train(claims: tuple[str, ...], kept: str) -> None:
    for order in (claims, claims[::-1]):
        judgments: list[Judgment | Malformed] = [Judgment("1", f"in {split}", 1, split) for split in order]
        judged, problems = read([Query("1", "one")], judgments, **SKIP)
        assert splits(judged) == {"1": kept}
        assert judged.judgments == [Judgment("1", f"in {kept}", 1, kept)]
        assert problems == {"shared_queries": 1}


def test_a_shared_query_keeps_the_text_of_the_split_it_stays_in() -> None:
    queries = [Query("1", "of train", "train", "person"), Query("1", "of test", "test", "entity")]
    judgments = [Judgment("1", "p", 1, "train"), Judgment("1", "q", 1, "test")]
    for order in (queries, queries[::-1]):
        judged, problems = read(order, judgments, **SKIP)
        assert judged.queries == [Query("1", "of test", "test", "entity")]
        assert judged.judgments == [Judgment("1", "q", 1, "test")]
        assert problems == {"shared_queries": 1}


def test_a_shared_query_is_named_with_its_splits() -> None:
    queries = [Query("1", "one"), Query("2", "two")]
    judgments = [Judgment("1", "p", 1, "train"), Judgment("1", "p", 1, "dev"), Judgment("2", "p", 1, "dev")]
    with pytest.raises(ProblemsFound, match=r"The dataset mine has 1 query .*\(1 in dev and train\).*on_shared=skip"):
        read(queries, judgments)


def test_the_first_of_two_queries_with_one_id_is_kept() -> None:
    queries = [Query("1", "first"), Query("1", "second")]
    judged, problems = read(queries, [Judgment("1", "p", 1, "dev")], **SKIP)
    assert judged.queries == [Query("1", "first", "dev")]
    assert problems == {"duplicate_queries": 1}
    with pytest.raises(ProblemsFound, match=r"1 query id that occurs again \(1\).*on_duplicate=skip"):
        read(queries, [Judgment("1", "p", 1, "dev")])


def test_the_first_of_two_judgments_of_one_pair_is_kept() -> None:
    judgments = [Judgment("1", "p", 2, "dev"), Judgment("1", "p", 0, "dev"), Judgment("1", "q", 0, "dev")]
    judged, problems = read([Query("1", "one")], judgments, **SKIP)
    assert judged.judgments == [Judgment("1", "p", 2, "dev"), Judgment("1", "q", 0, "dev")]
    assert problems == {"duplicate_judgments": 1}
    with pytest.raises(ProblemsFound, match=r"1 pair judged again \(query 1, passage p\).*on_duplicate=skip"):
        read([Query("1", "one")], judgments)


@pytest.mark.parametrize("text", ["", " \t\n"])
def test_a_query_without_text_is_left_out_with_its_judgments(text: str) -> None:
    queries = [Query("1", text), Query("2", "two")]
    judgments = [Judgment("1", "p", 1, "dev"), Judgment("2", "p", 1, "dev")]
    judged, problems = read(queries, judgments, **SKIP)
    assert splits(judged) == {"2": "dev"}
    assert judged.judgments == judgments[1:]
    assert problems == {"empty_queries": 1}
    with pytest.raises(ProblemsFound, match=r"1 query without text \(1\).*on_empty=skip"):
        read(queries, judgments)


def test_judgments_of_unknown_queries_are_left_out() -> None:
    judgments = [Judgment("9", "p", 1, "dev"), Judgment("1", "p", 1, "dev")]
    judged, problems = read([Query("1", "one")], judgments, **SKIP)
    assert judged.judgments == judgments[1:]
    assert splits(judged) == {"1": "dev"}
    assert problems == {"unknown_queries": 1}
    with pytest.raises(ProblemsFound, match=r"\(query 9, passage p\).*on_unknown=skip"):
        read([Query("1", "one")], judgments)


def test_given_types_replace_those_of_the_dataset() -> None:
    queries = [Query("1", "one", "dev", "person"), Query("2", "two", "dev", "entity"), Query("3", "three", "dev")]
    judged, problems = read(queries, [Judgment("1", "p", 1, "dev")], {"1": "number", "3": "place"})
    assert [query.query_type for query in judged.queries] == ["number", "entity", "place"]
    assert problems == {}


def test_types_of_unknown_queries_are_left_out() -> None:
    queries, judgments = [Query("1", "one"), Query("2", " ")], [Judgment("1", "p", 1, "dev")]
    types = {"9": "number", "1": "person", "2": "known, though it has no text"}
    judged, problems = read(queries, judgments, types, **SKIP)
    assert judged.queries == [Query("1", "one", "dev", "person")]
    assert problems == {"empty_queries": 1, "unknown_typed_queries": 1}
    with pytest.raises(
        ProblemsFound,
        match=r"1 type of an unknown query in dataset\.types_file \(query 9\).*--set dataset\.on_unknown=skip",
    ):
        read(queries[:1], judgments, {"9": "number"})


def test_malformed_queries_and_judgments_are_left_out() -> None:
    queries = [Malformed("queries.tsv", 1, "two fields expected"), Query("1", "one")]
    judgments = [Judgment("1", "p", 1, "dev"), Malformed("qrels.tsv", 2, "relevance is no number")]
    judged, problems = read(queries, judgments, **SKIP)
    assert splits(judged) == {"1": "dev"}
    assert judged.judgments == judgments[:1]
    assert problems == {"malformed": 2}
    with pytest.raises(ProblemsFound, match=r"\(qrels\.tsv line 2: relevance is no number\).*on_error=skip"):
        read(queries, judgments)


@pytest.mark.parametrize(
    ("queries", "judgments", "lacking"),
    [([], [Judgment("1", "p", 1, "dev")], "queries"), ([Query("1", "one")], [], "judgments")],
)
def test_a_source_without_queries_or_judgments_says_so(
    queries: list[Query | Malformed], judgments: list[Judgment | Malformed], lacking: str
) -> None:
    with pytest.raises(DatasetError, match=f"The dataset mine has no {lacking}: check its"):
        read(queries, judgments, **SKIP)


def test_queries_with_the_text_of_a_training_query_are_kept_and_counted() -> None:
    texts = {"1": "What is it?", "2": "what  is it", "3": "What is that?", "4": "what is it"}
    split = {"1": "train", "2": "test", "3": "test"}
    judgments: list[Judgment | Malformed] = [Judgment(query_id, "p", 1, name) for query_id, name in split.items()]
    judged, problems = read([Query(query_id, text) for query_id, text in texts.items()], judgments)
    assert judged.num_same_text == 1
    assert len(judged.queries) == 4
    assert problems == {}


def test_an_empty_query_does_not_hide_a_later_one_with_text() -> None:
    queries: list[Query | Malformed] = [Query("1", " "), Query("1", "one"), Query("1", "again"), Query("1", "")]
    judged, problems = read(queries, [Judgment("1", "p", 1, "train")], **SKIP)
    assert [query.text for query in judged.queries] == ["one"]
    assert len(judged.judgments) == 1
    assert problems == {"empty_queries": 1, "duplicate_queries": 2}
