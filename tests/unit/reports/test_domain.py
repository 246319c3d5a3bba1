"""The corpus's frequent words compared with those of general text, on small cases worked out by hand."""

import math
from collections import Counter

import pyarrow as pa
import pytest

from rayrank.core.errors import ConfigError
from rayrank.reports.domain import (
    Comparison,
    add_counts,
    check_language,
    compare,
    count_words,
    findings,
    general_words,
    reference_words,
)

GENERAL = {"the": 0.4, "of": 0.2, "cat": 0.1, "dog": 0.05, "gene": 0.01}


def table(counts: dict[str, int]) -> pa.Table:
    return pa.table({"word": pa.array(counts, pa.large_string()), "count": pa.array(counts.values(), pa.int64())})


def of(counts: dict[str, int], size: int, running: int | None = None) -> Comparison:
    return compare(table(counts), running or sum(counts.values()), GENERAL, size)


def test_a_hand_worked_comparison() -> None:
    result = of({"the": 50, "gene": 30, "allele": 16, "of": 4}, size=3)

    # Here: the, gene, allele. In general: the, of, cat. Two of three differ, and 54 of 100 words are on the list.
    assert (result.compared, result.num_differing, result.min_count) == (3, 2, 16)
    assert result.share == pytest.approx(2 / 3)
    assert result.covered == pytest.approx(0.54)
    the, gene, allele = result.words
    assert (the.word, the.rank, the.reference_rank, the.ratio) == ("the", 1, 1, pytest.approx(1.25))
    assert (gene.rank, gene.reference_rank, gene.ratio) == (2, 5, pytest.approx(30))
    assert gene.divergence == pytest.approx(0.3 * math.log2(30))
    # Not on the general list, so taken to be as frequent as its last word: at least 16 times as frequent here.
    assert (allele.reference_rank, allele.ratio) == (None, pytest.approx(16))
    assert [word.word for word in result.typical()] == ["gene", "allele"]


def test_a_corpus_with_the_words_of_general_text_does_not_differ() -> None:
    result = of({"of": 20, "the": 40, "cat": 10}, size=3)

    assert result.num_differing == 0
    assert result.covered == 1
    assert result.typical() == []


def test_numbers_count_as_running_words_but_not_as_words() -> None:
    assert of({"the": 40}, size=1, running=100).words[0].ratio == pytest.approx(1)


def test_equally_frequent_words_are_in_alphabetical_order() -> None:
    assert [word.word for word in of({"b": 2, "c": 3, "a": 2}, size=3).words] == ["c", "a", "b"]


def test_a_small_corpus_is_compared_with_as_many_general_words_as_it_has() -> None:
    result = of({"cat": 3, "the": 2}, size=10_000)

    assert (result.compared, result.num_differing) == (2, 1)


def test_the_share_by_chance_is_larger_for_a_smaller_corpus() -> None:
    general = general_words("en")
    counts = table(dict.fromkeys(list(general)[:2000], 10))
    shares = [compare(counts, running, general, 2000).by_chance for running in (10**4, 10**6, 10**9)]

    assert shares == sorted(shares, reverse=True)
    assert shares[0] > 0.2
    assert shares[-1] < 0.01


def test_words_are_tokenised_and_lower_cased_as_in_the_general_list() -> None:
    counts, running = count_words(["The patient's TSH, the 3rd of 15,000!", "Patient's"], "en")

    assert dict(zip(*counts.to_pydict().values(), strict=True)) == {"the": 2, "patient's": 2, "tsh": 1, "of": 1}
    assert running == 8
    assert {"patient's", "the", "of"} <= general_words("en").keys()


def test_general_words_are_without_digits_and_the_most_frequent_come_first() -> None:
    general = general_words("en")

    assert list(general)[:4] == ["the", "to", "and", "of"]
    assert list(general.values()) == sorted(general.values(), reverse=True)
    assert not any(sign.isdigit() for word in general for sign in word)


def test_a_reference_text_is_counted_as_the_corpus_is() -> None:
    counts, running = count_words(["The cat, the dog, the 2 of 3.", "THE cat"], "en")

    reference = reference_words(counts, running)

    # Ten words, of which two are numbers; ties are ordered by their letters.
    assert list(reference) == ["the", "cat", "dog", "of"]
    assert list(reference.values()) == pytest.approx([0.4, 0.2, 0.1, 0.1])
    result = compare(table({"the": 5, "gene": 4, "cat": 1}), 10, reference, size=2)
    assert (result.num_differing, result.covered) == (1, pytest.approx(0.6))
    assert [(word.reference_rank, word.ratio) for word in result.words] == [
        (1, pytest.approx(1.25)),
        (None, pytest.approx(4)),
    ]


def test_counts_of_parts_add_up_to_those_of_the_whole() -> None:
    texts = ["a rose is a rose", "is it a rose?", "it is", "so it is: a tulip"]
    parts = [count_words(texts[:1], "en")[0], count_words([], "en")[0], count_words(texts[1:], "en")[0]]

    added, whole = add_counts(parts), count_words(texts, "en")[0]

    assert Counter(dict(zip(*added.to_pydict().values(), strict=True))) == Counter(
        dict(zip(*whole.to_pydict().values(), strict=True))
    )


def test_the_findings_have_the_share_the_share_by_chance_and_the_typical_words() -> None:
    lines = findings(of({"the": 50, "gene": 30, "allele": 16, "of": 4}, size=3), "the text books.txt (en)")

    assert lines[0].startswith("66.7% of the corpus's 3 most frequent words are not among the 3 of the text books.txt")
    assert any(line.split() == ["gene", "30", "2", "5", "30.0"] for line in lines)
    assert any(line.split() == ["allele", "16", "3", "not", "listed", ">16.0"] for line in lines)


@pytest.mark.parametrize("language", ["xx", "zh", ""])
def test_a_language_without_a_usable_word_list_is_refused(language: str) -> None:
    with pytest.raises(ConfigError, match=rf"domain\.language={language} has no list of general words: .* en, "):
        check_language(language)


def test_a_language_with_a_word_list_is_accepted() -> None:
    check_language("de")
