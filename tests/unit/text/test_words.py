import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM
from rayrank.models.attention.strm import word_starts
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.words import ALONE, CONTINUES, STARTS, cut_words, multi_piece_queries, starts_of_words, word_table

TABLE = np.array([CONTINUES, STARTS, ALONE], np.int8)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], False),
        ([1], False),
        ([1, 1, 2], False),
        ([1, 0], True),
        ([1, 1, 0, 0], True),
        ([0], False),  # a row begins a word, whatever its first piece says
        ([0, 0], True),
        ([2, 0], False),  # what follows a lone piece begins a word
        ([2, 0, 0], True),
    ],
)
def test_multi_piece_words_worked_by_hand(ids, expected):
    assert multi_piece_queries(Ragged.of([ids]), TABLE).tolist() == [expected]


def test_words_do_not_continue_into_the_next_row():
    rows = [[1], [0], [], [1, 0], [], [0, 1], []]
    assert multi_piece_queries(Ragged.of(rows), TABLE).tolist() == [False, False, False, True, False, False, False]
    assert multi_piece_queries(Ragged.of([]), TABLE).tolist() == []


def test_a_slice_of_a_column_uses_its_own_rows_only():
    column = pa.chunked_array([pa.array([[1, 0], [1], [1, 0], [0, 0], [2]], pa.large_list(pa.int32()))])
    assert multi_piece_queries(Ragged.from_arrow(column.slice(1, 2)), TABLE).tolist() == [False, True]


@pytest.mark.parametrize("seed", range(5))
def test_words_are_the_same_as_in_strm(seed):
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 3, rng.integers(1, 6)) for _ in range(300)]
    expected = [bool((~word_starts(torch.from_numpy(row), torch.from_numpy(TABLE))).any()) for row in rows]
    assert multi_piece_queries(Ragged.of(rows), TABLE).tolist() == expected
    assert 0 < sum(expected) < len(expected)


def test_queries_with_rare_words_have_multi_piece_words():
    bert = load_tokenizer(MINILM)
    texts = ["what is a dog ?", "bogue", "who sang insouciantly", "what's new"]
    rows = [bert(text, add_special_tokens=False).input_ids for text in texts]
    assert multi_piece_queries(Ragged.of(rows), word_table(bert)).tolist() == [False, True, True, False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("river", CONTINUES),
        (" river", STARTS),
        (" “river", STARTS),
        ("’s", CONTINUES),
        ("é", CONTINUES),
        (",", ALONE),
        (" —", ALONE),
        ("…", ALONE),
        ("\n", ALONE),
        ("河", ALONE),
        (" 河", ALONE),
        ("แม่", ALONE),
        ("ि", CONTINUES),  # a vowel sign of Hindi, which has spaces between words
    ],
)
def test_pieces_of_byte_level_and_sentence_piece_vocabularies(text, expected):
    in_bytes = "".join(piece for piece, _ in ByteLevel(add_prefix_space=False).pre_tokenize_str(text))
    for piece, mark in ((in_bytes, "Ġ"), (text.replace(" ", "▁"), "▁")):
        vocabulary = {"<unk>": 0, piece: 1, f"{mark}a": 2, f"{mark}b": 3, f"{mark}c": 4}
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(vocabulary, "<unk>")))
        assert word_table(tokenizer)[1] == expected


def test_some_bytes_of_a_character_continue_a_word():
    tokenizer = Tokenizer(WordLevel({"<unk>": 0, "âĢ": 1, "Ġâ": 2, "Ġa": 3}, "<unk>"))
    assert word_table(PreTrainedTokenizerFast(tokenizer_object=tokenizer))[1:].tolist() == [CONTINUES, STARTS, STARTS]


def test_a_vocabulary_with_gaps_has_a_row_for_its_last_id():
    tokenizer = Tokenizer(WordLevel({"<unk>": 0, "##a": 7, "a": 3}, "<unk>"))
    assert word_table(PreTrainedTokenizerFast(tokenizer_object=tokenizer))[[3, 7]].tolist() == [STARTS, CONTINUES]


def test_words_start_at_rows_after_punctuation_and_where_a_piece_continues_none():
    rows = [[1, 0, 0, 1, 0], [0, 0], [], [2, 0, 0, 2, 1]]
    expected = [1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1, 1]
    assert starts_of_words(Ragged.of(rows), TABLE).astype(int).tolist() == expected


def test_cut_words_are_counted_once_each():
    rows = [[1, 0, 0, 1, 0], [1, 1], [0, 0], [], [2, 0, 0, 2, 1, 0]]
    assert cut_words(Ragged.of(rows), TABLE).tolist() == [2, 0, 1, 0, 2]
