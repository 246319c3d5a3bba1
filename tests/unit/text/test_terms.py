"""A text's words hold the same terms for Lucene as the text itself."""

import pytest

from rayrank.text.terms import term, terms_of, word_spans, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The river, the sea.", ["The", "river", "the", "sea"]),
        ("Don't ask the U.S. Senate", ["Don't", "ask", "the", "U.S", "Senate"]),
        ("it’s 3,000.50 at 12:30; foo,bar", ["it’s", "3,000.50", "at", "12:30", "foo", "bar"]),
        ("light-house (rock/jazz) costs €5 ...", ["light", "house", "rock", "jazz", "costs", "5"]),
        ("Café—naïve e\u0301t\u0301 हिन्दी", ["Café", "naïve", "e\u0301t\u0301", "हिन्दी"]),
        ("東京の人口は？", ["東", "京", "の", "人", "口", "は", "？"]),
        ("", []),
        (" \n— !", []),
    ],
)
def test_words_are_as_the_text_spells_them(text: str, words: list[str]) -> None:
    assert words_of(text) == words
    assert [text[start:stop] for start, stop in word_spans(text)] == words


def test_a_term_is_lower_case_and_stemmed_and_not_possessive() -> None:
    assert [term(word) for word in ("Insurances", "insured", "John's", "JOHN’S", "don't", "É")] == [
        "insur", "insur", "john", "john", "don't", "é",
    ]  # fmt: skip


def test_the_terms_of_a_text_are_a_set() -> None:
    assert terms_of(["Rivers of the river", ""]) == [{"river", "of", "the"}, set()]
