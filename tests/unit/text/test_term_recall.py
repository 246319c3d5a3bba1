"""The share of a passage's queries that contain each of its words, worked by hand."""

from rayrank.text.term_recall import query_term_recall


def recall(passage: str, *queries: str) -> list[float]:
    return query_term_recall(passage.split(), queries).tolist()


def test_a_word_of_one_of_two_queries_has_recall_one_half_and_a_shared_one_has_one() -> None:
    assert recall("the harp of Besançon", "where is the harp", "who made a harp") == [0.5, 1.0, 0.0, 0.0]


def test_every_occurrence_of_a_word_has_the_same_recall_in_any_case_and_form() -> None:
    assert recall("Insurance insures insured people", "insurances") == [1.0, 1.0, 1.0, 0.0]


def test_a_word_that_a_query_repeats_counts_once() -> None:
    assert recall("row your boat", "row row row", "a boat") == [0.5, 0.0, 0.5]


def test_stop_words_are_words_like_any_other() -> None:
    assert recall("what is it", "what is a harp") == [1.0, 1.0, 0.0]


def test_a_word_of_a_query_that_the_passage_lacks_changes_nothing() -> None:
    assert recall("harp", "harp strings") == recall("harp", "harp") == [1.0]
