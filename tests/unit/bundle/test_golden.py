import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from rayrank.bundle.golden import GoldenPair, parity, read_part, spread
from rayrank.core.config import MINILM
from rayrank.text.pieces import load_tokenizer

PAIRS = [GoldenPair(query=query, passage=str(score), score=score) for query in "ab" for score in (-2.0, 0.0, 2.0)]
SCORES = np.array([pair.score for pair in PAIRS])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


def test_the_same_scores_have_nothing_against_them() -> None:
    found = parity(PAIRS, SCORES + 1e-4)

    assert (found.num_pairs, found.agreement) == (6, 1)
    assert found.farthest == pytest.approx(1e-4)
    assert not found.objection(exact=True)


def test_scores_of_fewer_bits_may_be_further_off_but_not_far() -> None:
    near, far = parity(PAIRS, SCORES + 0.3), parity(PAIRS, SCORES - 0.5)

    assert "off by up to 0.3, and 0.001 is allowed" in near.objection(exact=True)
    assert not near.objection(exact=False)
    # A quarter of the standard deviation, which is the root of 8/3.
    assert "off by up to 0.5, and 0.4082 is allowed" in far.objection(exact=False)


def test_agreement_is_within_queries_only() -> None:
    # The second query is off as a whole, which changes no order; the first is reversed.
    shifted, reversed_ = SCORES + [0, 0, 0, 9, 9, 9], SCORES * [-1, -1, -1, 1, 1, 1]

    assert parity(PAIRS, shifted).agreement == 1
    assert parity(PAIRS, reversed_).agreement == 0


def test_scores_that_are_not_numbers_are_always_wrong() -> None:
    found = parity(PAIRS, np.full(6, np.nan))

    assert found.objection(exact=True)
    assert found.objection(exact=False)


def test_places_are_spread_from_the_smallest_to_the_largest() -> None:
    values = [5, 1, 4, 2, 3]

    assert [values[place] for place in spread(values, 3)] == [1, 3, 5]
    assert spread([7], 3).tolist() == [0]


@pytest.mark.parametrize("num_pieces", [1, 5, 6, 7, 20])
def test_a_text_is_cut_after_the_word_that_holds_the_last_piece(
    tokenizer: PreTrainedTokenizerFast, num_pieces: int
) -> None:
    text = "The insouciantly-named faldumondo lighthouse, as Agna Cassomir told us."
    pieces = tokenizer.tokenize(text)

    kept = read_part(text, tokenizer, num_pieces)

    assert text.startswith(kept)
    assert tokenizer.tokenize(kept)[:num_pieces] == pieces[:num_pieces]
    assert len(tokenizer.tokenize(kept)) < num_pieces + 4
    assert not pieces[len(tokenizer.tokenize(kept)) :][:1] or not pieces[len(tokenizer.tokenize(kept))].startswith("##")


def test_a_text_that_is_read_whole_stays_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    assert read_part("  A lighthouse. ", tokenizer, 3) == "  A lighthouse. "
