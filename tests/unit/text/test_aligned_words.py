"""Words are found in the text itself, each with its first piece, and no window loses one."""

import pytest
from hypothesis import given, strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from rayrank.core.config import MINILM
from rayrank.text.aligned_words import ALL_PIECES, align
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.terms import words_of

TOKENIZER = load_tokenizer(MINILM)
ENCODER = PieceEncoder(TOKENIZER.backend_tokenizer.to_str(), ALL_PIECES)
LONG = "The insouciantly playing harpists' café, in Besançon: 3,000 strings! "


def first_pieces(text: str, max_pieces: int = 512) -> dict[str, str]:
    found = align([text], ENCODER, max_pieces)
    pieces = TOKENIZER.convert_ids_to_tokens(found.windows.values[found.firsts[0]].tolist())
    return dict(zip(found.words[0], pieces, strict=True))


def test_a_word_of_several_pieces_counts_once_by_its_first_piece_and_keeps_its_spelling() -> None:
    assert first_pieces("Insouciantly, Harps don't (Café) 3,000.") == {
        "Insouciantly": "ins", "Harps": "harp", "don't": "don", "Café": "cafe", "3,000": "3",
    }  # fmt: skip


def test_repeated_words_are_all_there() -> None:
    found = align(["harp, Harp and harp"], ENCODER, 512)
    assert found.words == [["harp", "Harp", "and", "harp"]]
    assert found.firsts[0].tolist() == [0, 2, 3, 4]


def test_texts_follow_each_other_with_their_own_words() -> None:
    alone, texts = ENCODER(["a harp", "", "the sea"]).to_pylist(), ["a harp", "", "the sea"]
    found = align(texts, ENCODER, 512)
    assert [found.windows[row].tolist() for row in range(len(found.windows))] == [alone[0], alone[2]]
    assert found.of_text.tolist() == [0, 2]
    assert found.words == [["a", "harp"], [], ["the", "sea"]]
    assert [positions.tolist() for positions in found.firsts] == [[0, 1], [], [2, 3]]


@pytest.mark.parametrize("max_pieces", [1, 2, 5, 14, 100])
def test_windows_hold_every_piece_and_begin_with_a_word_where_it_fits(max_pieces: int) -> None:
    text = LONG * 5
    found = align([text], ENCODER, max_pieces)
    assert found.windows.lengths().max() <= max_pieces
    assert found.windows.values.tolist() == ENCODER([text])[0].as_py()
    assert found.words == [words_of(text)]
    if max_pieces >= 5:  # the pieces of the longest word
        assert set(found.windows.starts.tolist()) <= set(found.firsts[0].tolist())


def test_a_window_is_cut_before_the_word_that_does_not_fit() -> None:
    pieces = TOKENIZER.tokenize("the insouciantly")
    assert len(pieces) > 3
    assert align(["the insouciantly"], ENCODER, 3).windows.lengths().tolist()[0] == 1


def test_a_word_of_characters_that_the_tokenizer_drops_is_left_out() -> None:
    assert align(["harp \u200d sea"], ENCODER, 512).words == [["harp", "sea"]]


def test_words_are_found_under_tokenizers_that_mark_where_words_begin() -> None:
    vocabulary = [("<unk>", 0.0), ("▁a", -1.0), ("▁har", -1.0), ("ps", -1.0), ("-sea", -1.0), ("▁", -5.0)]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=0))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    found = align(["A  Harps-Sea"], PieceEncoder(backend.to_str(), ALL_PIECES), 512)
    pieces = [vocabulary[piece][0] for piece in found.windows.values[found.firsts[0]].tolist()]
    assert dict(zip(found.words[0], pieces, strict=True)) == {"A": "▁a", "Harps": "▁har", "Sea": "-sea"}


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=60), max_size=4), st.integers(1, 8))
def test_any_texts_keep_their_pieces(texts: list[str], max_pieces: int) -> None:
    found = align(texts, ENCODER, max_pieces)
    assert found.windows.values.tolist() == [piece for row in ENCODER(texts).to_pylist() for piece in row]
    assert found.windows.offsets[-1] == len(found.windows.values)
    assert found.windows.lengths().max(initial=0) <= max_pieces
    for number, text in enumerate(texts):
        assert len(found.words[number]) == len(found.firsts[number])
        assert set(found.words[number]) <= set(words_of(text))
