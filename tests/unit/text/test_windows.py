"""Windows cover a passage, overlap by the stride, and never leave it."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rayrank.core.config import InputConfig
from rayrank.core.errors import ConfigError
from rayrank.core.overrides import build
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.text.windows import PassageWindows
from rayrank.text.words import ALONE, CONTINUES, STARTS

WORDS = np.full(10_000, STARTS, np.int8)
TOKENIZER: Any = SimpleNamespace(cls_token_id=1, sep_token_id=2, pad_token_id=0)
INPUTS = InputConfig(length=24, query_length=8, query_type=False, long_passages="windows", window_stride=5)


def cut(*passages: range, inputs: InputConfig = INPUTS) -> list[list[list[int]]]:
    """Return the windows of each passage."""
    found = PassageWindows.of(Ragged.of(passages), inputs, WORDS)
    rows, counts = found.of_passages(np.arange(len(passages)))
    windows = [found.windows[row].tolist() for row in rows]
    ends = np.cumsum(counts)
    return [windows[end - count : end] for end, count in zip(ends, counts, strict=True)]


def test_a_window_is_what_fits_beside_a_query_of_full_length() -> None:
    assert INPUTS.pieces_of_window() == 24 - 8 - 3
    assert INPUTS.model_copy(update={"query_type": True}).pieces_of_window() == 24 - 8 - 5
    assert INPUTS.model_copy(update={"window_length": 100}).pieces_of_window() == 24 - 8 - 3
    assert INPUTS.model_copy(update={"window_length": 9, "window_stride": None}).stride() == 4


def test_a_hand_worked_case() -> None:
    short, empty, long = cut(range(13), range(0), range(100, 121))

    assert short == [list(range(13))]
    assert empty == [[]]
    # Stride 5: from 100, from 105, and the last moved back from 110 to 108, so that it is 13 long as well.
    assert long == [list(range(start, start + 13)) for start in (100, 105, 108)]


def test_a_window_begins_with_a_word() -> None:
    words = WORDS.copy()
    words[[5, 6, 8]] = CONTINUES  # the second window would begin with the word's second piece, the last with its fourth

    found = PassageWindows.of(Ragged.of([range(21)]), INPUTS, words)

    assert [window.tolist() for window in map(found.windows.__getitem__, range(3))] == [
        list(range(13)),
        list(range(7, 18)),
        list(range(9, 21)),
    ]


def test_a_word_that_is_longer_than_a_window_is_cut_inside() -> None:
    words = np.full(100, CONTINUES, np.int8)

    found = PassageWindows.of(Ragged.of([range(21)]), INPUTS, words)

    assert found.windows.starts.tolist() == [0, 5, 8]


def test_a_piece_after_one_that_stands_alone_begins_a_word() -> None:
    words = np.full(100, CONTINUES, np.int8)
    words[[4, 7]] = ALONE

    found = PassageWindows.of(Ragged.of([range(21)]), INPUTS, words)

    assert found.windows.starts.tolist() == [0, 5, 8]


def test_no_more_windows_than_allowed() -> None:
    (found,) = cut(range(1000), inputs=INPUTS.model_copy(update={"max_windows": 3}))

    assert [window[0] for window in found] == [0, 5, 10]
    assert INPUTS.model_copy(update={"max_windows": 3}).pieces_read() == 10 + 13 == found[-1][-1] + 1


@given(st.lists(st.integers(0, 200), min_size=1, max_size=5), st.integers(1, 13))
def test_every_piece_is_in_a_window_and_windows_are_in_order(sizes: list[int], stride: int) -> None:
    inputs = INPUTS.model_copy(update={"window_stride": stride, "max_windows": 1000})
    passages = [range(1000 * number, 1000 * number + size) for number, size in enumerate(sizes)]

    for passage, windows in zip(passages, cut(*passages, inputs=inputs), strict=True):
        assert sorted({piece for window in windows for piece in window}) == list(passage)
        assert all(len(window) == min(13, len(passage)) for window in windows)
        assert [window[:1] for window in windows] == sorted(window[:1] for window in windows)


@given(st.integers(0, 12), st.integers(0, 10), st.integers(0, 60))
def test_inputs_hold_every_piece_of_a_passage_however_long_query_and_type_are(query: int, kind: int, size: int) -> None:
    inputs = InputConfig(length=24, query_length=8, long_passages="windows", window_stride=11)
    template = Template.of(TOKENIZER, inputs)
    passage = PassageWindows.of(Ragged.of([range(100, 100 + size)]), inputs, WORDS)
    prefix = template.prefixes(Ragged.of([range(50, 50 + query)]), Ragged.of([range(70, 70 + kind)]))

    rows = np.zeros(len(passage.windows), np.int64)
    read = template.pairs(prefix.take(rows), passage.windows).ids

    assert read.lengths().max() <= 24
    assert {piece for piece in read.values.tolist() if piece >= 100} == set(range(100, 100 + size))


@pytest.mark.parametrize("rows", [[1], [1, 0, 1], []])
def test_windows_of_some_passages(rows: list[int]) -> None:
    found = PassageWindows.of(Ragged.of([range(20), range(5)]), INPUTS, WORDS)

    windows, counts = found.of_passages(np.array(rows, np.int64))

    assert counts.tolist() == [{0: 3, 1: 1}[row] for row in rows]
    assert windows.tolist() == [window for row in rows for window in {0: [0, 1, 2], 1: [3]}[row]]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ("input.window_stride=900", "input.window_stride=900 leaves out text between windows of 187 word pieces"),
        ("input.window_length=500", "input.window_length=500 does not fit beside a query of full length"),
        ("input.max_windows=9", "text.passage_pieces=900 is too small: input.max_windows=9 windows reach 931"),
    ],
)
def test_windows_that_would_leave_text_out_are_refused(wrong: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build("minilm", assignments=["input.long_passages=windows", "text.passage_pieces=900", wrong])
