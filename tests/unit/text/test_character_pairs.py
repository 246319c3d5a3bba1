"""Texts without spaces between words are searched by pairs of neighbouring characters."""

import pytest

from rayrank.text.character_pairs import in_pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("ไทย", ["ไท", "ทย"]),
        ("น้ำดี", ["น้ำ", "ำดี"]),  # a letter keeps its vowel signs and tone marks
        ("ก", ["ก"]),
        ("ប្រទេស", ["ប្រ", "រទេ", "ទេស"]),
        ("ປະເທດ", ["ປະ", "ະເ", "ເທ", "ທດ"]),
        ("ไทย 2024 Bangkok, ไทย", ["ไท", "ทย", "2024", "Bangkok,", "ไท", "ทย"]),
        ("ไทยABC", ["ไท", "ทย", "ABC"]),
    ],
)
def test_letters_stand_in_overlapping_pairs(text: str, pairs: list[str]) -> None:
    assert in_pairs(text).split() == pairs


def test_zero_width_spaces_between_words_change_nothing() -> None:
    assert in_pairs("ประเทศ\u200bไทย") == in_pairs("ประเทศไทย")


def test_other_texts_stay_as_they_are() -> None:
    for text in ("Straße, naïve 3.5", "東京の人口", "हिन्दी में", "", " \n"):
        assert in_pairs(text) == text
