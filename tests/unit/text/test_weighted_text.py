"""Weights become term frequencies, worked by hand."""

import numpy as np

from rayrank.text.weighted_text import WeightedText, weighted_text


def made(words: str, weights: list[float], scale: int = 10) -> WeightedText:
    return weighted_text(words.split(), np.array(weights, np.float32), scale)


def test_a_word_is_repeated_as_often_as_its_weight_says() -> None:
    assert made("harp sea", [0.3, 0.16]) == ("harp harp harp sea sea", 2, 5)


def test_words_without_weight_are_dropped() -> None:
    assert made("the harp of sea", [0.04, 0.1, -0.7, 0.0]) == ("harp", 1, 1)
    assert made("the of", [0.0, -1.0]) == ("", 0, 0)
    assert made("", []) == ("", 0, 0)


def test_the_highest_weight_of_a_repeated_word_counts_and_its_first_spelling() -> None:
    assert made("Harp sea HARP harp", [0.1, 0.1, 0.3, -0.2]) == ("Harp Harp Harp sea", 2, 4)


def test_other_spellings_with_accents_are_other_words() -> None:
    assert made("café cafe", [0.1, 0.2]).text == "café cafe cafe"


def test_a_weight_of_one_has_the_frequency_of_the_scale() -> None:
    assert made("harp", [1.0], scale=100).length == 100
    assert made("harp", [1.234], scale=100).length == 123
