"""Of a text that is far too long only the start is tokenised, and its ids equal those of the whole text."""

import random
import time

import pytest

from rayrank.core.config import MINILM
from rayrank.text.pieces import LONGEST_WORD, PieceEncoder, load_tokenizer

TOKENIZER = load_tokenizer(MINILM).backend_tokenizer.to_str()
WORDS = "the whale, bogue's insouciantly 3.14 größe 東京の https://example.org/a?b U.S.A. soft\u00adhyphen".split()


def long_text(between: str, longest: int = 1) -> str:
    draw = random.Random(3)
    words = (draw.choice(WORDS) * draw.randint(1, longest) + between * draw.randint(1, 3) for _ in range(4000))
    return "".join(words)


LONG = {
    "words": long_text(" "),
    "lines": long_text("\n\n\t"),
    "far apart": "\n" * 50_000 + long_text(" " * 100),
    "long words": long_text(" ", longest=40),
    "no white space": long_text(""),
    "nothing known": "x" * 100_000,
    "dots": "." * 100_000,
    "nothing": " " * 100_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_ids_are_those_of_the_whole_text(text: str) -> None:
    (whole,) = PieceEncoder(TOKENIZER, 1 << 20)([text]).to_pylist()
    for limit in (1, 7, 64):
        assert len(text) > limit * LONGEST_WORD
        assert PieceEncoder(TOKENIZER, limit)([text]).to_pylist() == [whole[:limit]]


def seconds(encode: PieceEncoder, text: str) -> float:
    began = time.perf_counter()
    encode([text])
    return time.perf_counter() - began


@pytest.mark.parametrize("word", [".", "x", "東", "whale "])
def test_tokenising_two_megabytes_takes_only_as_long_as_the_part_that_is_read(word: str) -> None:
    encode = PieceEncoder(TOKENIZER, 180)
    short, long = (word * (size // len(word)) for size in (20_000, 2_000_000))
    seconds(encode, short)
    least = min(seconds(encode, short) for _ in range(3))
    # A hundred times as long, of which 46,080 characters are read at most.
    assert min(seconds(encode, long) for _ in range(3)) < 20 * least
