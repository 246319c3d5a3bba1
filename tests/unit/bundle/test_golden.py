"""Golden pairs: how new scores are compared with the stored ones, and how pairs are chosen and truncated."""

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from rayrank.bundle.golden import GoldenPair, parity, quantile_indices, truncate_after_word
from rayrank.core.config import MINILM
from rayrank.text.pieces import load_tokenizer

PAIRS = [GoldenPair(query=query, passage=str(score), score=score) for query in "ab" for score in (-2.0, 0.0, 2.0)]
SCORES = np.array([pair.score for pair in PAIRS])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return load_tokenizer(MINILM)


def test_nearly_equal_scores_are_accepted() -> None:
    found = parity(PAIRS, SCORES + 1e-4)

    assert (found.num_pairs, found.tau) == (6, 1)
    assert found.max_difference == pytest.approx(1e-4)
    assert not found.objection(exact=True)


def test_scores_of_reduced_precision_have_a_larger_tolerance() -> None:
    near, far = parity(PAIRS, SCORES + 0.3), parity(PAIRS, SCORES - 0.5)

    assert "off by up to 0.3, and 0.001 is allowed" in near.objection(exact=True)
    assert not near.objection(exact=False)
    # The tolerance is a quarter of the standard deviation, sqrt(8/3).
    assert "off by up to 0.5, and 0.4082 is allowed" in far.objection(exact=False)


def test_tau_compares_the_passages_of_one_query_only() -> None:
    # Adding 9 to all scores of the second query changes no order; negating those of the first reverses it.
    shifted, reversed_ = SCORES + [0, 0, 0, 9, 9, 9], SCORES * [-1, -1, -1, 1, 1, 1]

    assert parity(PAIRS, shifted).tau == 1
    assert parity(PAIRS, reversed_).tau == 0


def test_nan_scores_are_rejected() -> None:
    found = parity(PAIRS, np.full(6, np.nan))

    assert found.objection(exact=True)
    assert found.objection(exact=False)


def test_quantiles_include_the_smallest_and_the_largest_value() -> None:
    values = [5, 1, 4, 2, 3]

    assert [values[index] for index in quantile_indices(values, 3)] == [1, 3, 5]
    assert quantile_indices([7], 3).tolist() == [0]


@pytest.mark.parametrize("num_pieces", [1, 5, 6, 7, 20])
def test_a_text_is_truncated_after_the_word_of_its_last_piece(
    tokenizer: PreTrainedTokenizerFast, num_pieces: int
) -> None:
    text = "The insouciantly-named faldumondo lighthouse, as Agna Cassomir told us."
    pieces = tokenizer.tokenize(text)

    kept = truncate_after_word(text, tokenizer, num_pieces)

    assert text.startswith(kept)
    assert tokenizer.tokenize(kept)[:num_pieces] == pieces[:num_pieces]
    assert len(tokenizer.tokenize(kept)) < num_pieces + 4
    assert not pieces[len(tokenizer.tokenize(kept)) :][:1] or not pieces[len(tokenizer.tokenize(kept))].startswith("##")


def test_a_short_text_is_not_truncated(tokenizer: PreTrainedTokenizerFast) -> None:
    assert truncate_after_word("  A lighthouse. ", tokenizer, 3) == "  A lighthouse. "
