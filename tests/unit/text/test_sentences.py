"""Sentences found in piece ids begin where a reader would begin them."""

import random
from itertools import pairwise

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rayrank.core.config import MINILM
from rayrank.text import sentences
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.sentences import (
    CLOSES,
    DIGIT_FIRST,
    DIGIT_LAST,
    ENDS,
    MIN_PIECES,
    POINT,
    sentence_table,
    split_sentences,
)


@pytest.fixture(scope="module")
def bert() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


@pytest.fixture(scope="module")
def table(bert: PreTrainedTokenizerFast) -> np.ndarray:
    return sentence_table(bert)


def split(bert: PreTrainedTokenizerFast, table: np.ndarray, *texts: str) -> list[list[str]]:
    passages = Ragged.of([bert(text, add_special_tokens=False).input_ids for text in texts])
    found = split_sentences(passages, table)
    spans = [bert.decode(passages.values[a:b]) for a, b in pairwise(found.bounds)]
    assert len(found.offsets) == len(texts) + 1
    return [spans[a:b] for a, b in pairwise(found.offsets)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The house is red. The hill is green.", ["the house is red.", "the hill is green."]),
        ("Is the house red? Of course it is! So be it.", ["is the house red?", "of course it is!", "so be it."]),
        ("It costs 1.5 dollars a day. That is cheap.", ["it costs 1. 5 dollars a day.", "that is cheap."]),
        ("He waited and waited... Then he went home.", ["he waited and waited...", "then he went home."]),
        ('She said "leave me alone." He did not leave.', ['she said " leave me alone. "', "he did not leave."]),
        ("The army of the U. S. marched. It rained all day.", ["the army of the u. s. marched.", "it rained all day."]),
        ("1. A. Wash your hands well. Dry them with care.", ["1. a. wash your hands well.", "dry them with care."]),
        ("It was built by one man. Wow! Nobody knows when.", ["it was built by one man. wow!", "nobody knows when."]),
        ("No end in sight", ["no end in sight"]),
        ("Who? Me? Yes.", ["who? me? yes."]),
        ("", []),
    ],
)  # fmt: skip
def test_a_text_is_split_where_a_reader_would(
    bert: PreTrainedTokenizerFast, table: np.ndarray, text: str, expected: list[str]
) -> None:
    (found,) = split(bert, table, text)
    assert [sentence.replace(" .", ".") for sentence in found] == expected


def naive(roles: list[int]) -> list[int]:
    """One passage, piece by piece."""
    ended: list[bool] = []
    closing = 0
    for k, role in enumerate(roles):
        number = (
            role & POINT and k and roles[k - 1] & DIGIT_LAST and roles[k + 1 : k + 2] and roles[k + 1] & DIGIT_FIRST
        )
        after = bool(k and ended[-1] and role & CLOSES and closing < 2)
        closing = closing + 1 if after else 0
        ended.append(bool(role & ENDS and not number) or after)
    starts = [k for k in range(len(roles)) if k == 0 or (ended[k - 1] and not ended[k])]
    long = [a for a, b in pairwise([*starts, len(roles)]) if b - a >= MIN_PIECES]
    return ([0] if roles else []) + long[1:]


@pytest.mark.parametrize("block", [1, 40, 1 << 24])
def test_splitting_all_passages_at_once_equals_splitting_each_alone(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentences, "BLOCK", block)
    rng = random.Random(block)
    kinds = [0, 0, 0, 0, ENDS, ENDS | POINT, CLOSES, DIGIT_LAST | DIGIT_FIRST, DIGIT_LAST]
    rows = [[rng.randrange(len(kinds)) for _ in range(rng.choice([0, 1, 3, 12, 40]))] for _ in range(300)]
    passages = Ragged.of(rows)

    found = split_sentences(passages, np.array(kinds, np.uint8))

    assert found.bounds[-1] == len(passages.values)
    for row, ids in enumerate(rows):
        starts = found.bounds[found.offsets[row] : found.offsets[row + 1]] - passages.offsets[row]
        assert starts.tolist() == naive([kinds[piece] for piece in ids])
    assert found.counts.tolist() == [len(naive([kinds[piece] for piece in ids])) for ids in rows]


def test_a_slice_of_a_column_has_positions_in_the_whole_column(
    table: np.ndarray, bert: PreTrainedTokenizerFast
) -> None:
    ids = bert("The house is red. The hill is green.", add_special_tokens=False).input_ids
    whole = Ragged.of([ids, ids, ids])
    part = Ragged(whole.values, whole.offsets[1:3])

    assert split_sentences(part, table).bounds.tolist() == [len(ids), len(ids) + 5, 2 * len(ids)]


def test_special_tokens_and_words_end_no_sentence(bert: PreTrainedTokenizerFast, table: np.ndarray) -> None:
    assert not table[bert.all_special_ids].any()
    assert set(bert.convert_ids_to_tokens(np.flatnonzero(table & ENDS).tolist())) >= {".", "!", "?", "…", "。", "！"}
    assert not table[bert.convert_tokens_to_ids(["the", "dr", ",", ";", ":", "-"])].any()


@pytest.mark.parametrize("kind", ["bytes", "signs"])
def test_vocabularies_that_mark_spaces_are_supported(kind: str) -> None:
    mark = "Ġ" if kind == "bytes" else "▁"
    stop = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str("。")[0][0] if kind == "bytes" else "。"
    pieces = ["<s>", ".", f"{mark}.", "?!", stop, ").", f'{mark}"', "5", f"{mark}5", f"{mark}the", "1.5", mark]
    backend = Tokenizer(models.WordLevel({piece: row for row, piece in enumerate(pieces)}, unk_token="<s>"))
    backend.decoder = decoders.ByteLevel() if kind == "bytes" else decoders.Metaspace()

    found = sentence_table(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<s>"))

    digits = DIGIT_FIRST | DIGIT_LAST
    assert found.tolist() == [
        0, ENDS | POINT, ENDS | POINT, ENDS, ENDS, ENDS, CLOSES, digits, DIGIT_LAST, 0, digits, 0,
    ]  # fmt: skip


def test_the_sentence_ends_of_other_scripts_are_known_alone_and_at_the_end_of_a_piece() -> None:
    ends = ["。", "！", "।", "؟", "۔", "።", "։", "။", "។", "です。", "है।", "た。」", "▁كتاب؟"]
    others = ["Mr.", "e.g.", "a?", "东京", "▁है", "、", "،", "。a"]
    pieces = ["<s>", *ends, *others]
    backend = Tokenizer(models.WordLevel({piece: row for row, piece in enumerate(pieces)}, unk_token="<s>"))
    backend.decoder = decoders.Metaspace()

    found = sentence_table(PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<s>"))

    assert found.tolist() == [0, *[ENDS] * len(ends), *[0] * len(others)]


def test_a_chinese_passage_has_sentences(bert: PreTrainedTokenizerFast, table: np.ndarray) -> None:
    (found,) = split(bert, table, "东京是大城。人口有多少？山大水大人大")
    assert len(found) == 3
