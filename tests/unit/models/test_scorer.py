"""Scores come in the caller's order, however pairs are batched."""

import numpy as np
import pytest
import torch

from rayrank.core.config import StrmConfig
from rayrank.models.attention.packed_scoring import QUERY_BLOCK
from rayrank.models.batches import PaddedBatch
from rayrank.models.inference import scorer as scorer_module
from rayrank.models.inference.scorer import Scorer, block_aligned_order
from rayrank.models.pair_texts import PairTexts
from rayrank.text.ragged import Ragged
from tests.unit.models.conftest import CPU, FORMS, model, rows, texts


def test_scores_come_in_the_callers_order_whatever_the_budget() -> None:
    source, (queries, passages), reranker = texts(), rows(50), model(StrmConfig())
    with torch.no_grad():
        alone = np.concatenate(
            [reranker(source.padded(queries[[row]], passages[[row]], CPU))[:, 0] for row in range(50)]
        )

    for tokens in (1, 100, 5000):
        assert np.allclose(Scorer(reranker, source, tokens)(queries, passages), alone, atol=1e-5)


@pytest.mark.parametrize("packs", [False, True])
def test_pairs_that_are_prepared_a_part_at_a_time_have_the_same_scores(
    packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, (queries, passages), reranker = texts(), rows(50), model(StrmConfig())
    scorers = [Scorer(reranker, source, tokens=300) for _ in range(2)]
    whole = scorers[0](queries, passages)

    scorers[1].packs = packs
    monkeypatch.setattr(scorer_module, "PAIRS_AT_ONCE", 7)

    assert np.allclose(scorers[1](queries, passages), whole, atol=1e-5)


def test_when_memory_runs_out_batches_become_smaller_and_every_pair_is_scored() -> None:
    source, (queries, passages), reranker = texts(), rows(50), model(StrmConfig())
    whole = Scorer(reranker, source)(queries, passages)
    sizes = []

    def little_memory(module: torch.nn.Module, given: tuple[PaddedBatch]) -> None:
        sizes.append(given[0].ids.numel())
        if sizes[-1] > 200:
            raise torch.OutOfMemoryError

    reranker.register_forward_pre_hook(little_memory)
    scorer = Scorer(reranker, source, tokens=1000)

    assert np.allclose(scorer(queries, passages), whole, atol=1e-5)
    assert 100 < scorer.tokens <= 200
    sizes.clear()
    scorer(queries, passages)
    assert max(sizes) <= 200
    reranker.register_forward_pre_hook(lambda module, given: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        scorer(queries, passages)


def test_when_memory_does_not_suffice_for_the_smallest_row_the_error_is_raised() -> None:
    source, reranker = texts(length=24), model(StrmConfig())
    packed = Scorer(reranker, source)
    packed.packs = True
    packed.tokens = packed._usable_budget(1000)
    reranker.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError))
    with pytest.raises(torch.OutOfMemoryError):
        packed(*rows(50))
    assert packed.tokens == 2 * QUERY_BLOCK


@pytest.mark.parametrize("tokens", [64, 130, 320])
@pytest.mark.parametrize("form", FORMS)
def test_packed_rows_give_scores_in_the_callers_order(form: str, tokens: int) -> None:
    source, reranker, order = texts(), model(FORMS[form]), np.random.default_rng(1).permutation(40)
    queries, passages = (
        Ragged.of([of[row] for row in chosen])
        for of, chosen in zip((source.prefixes, source.passages), rows(40), strict=True)
    )
    source = PairTexts(queries, passages, source.template)
    expected = Scorer(reranker, source)(order, order)
    # Packed rows, as on a GPU.
    packed = Scorer(reranker, source)
    packed.packs = True
    packed.tokens = packed._usable_budget(tokens)

    sizes = []
    reranker.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0].ids)))
    assert packed.tokens % QUERY_BLOCK == 0
    assert np.allclose(packed(order, order), expected, atol=1e-5)
    assert 0 < packed.num_in_full_rows() < 40
    # Rows have at least two blocks, and are padded by less than that.
    num_tokens = source.lengths(order, order).sum()
    assert max(sizes) <= packed.tokens
    assert sum(sizes) < num_tokens + 2 * QUERY_BLOCK * len(sizes)
    assert min(sizes) >= 2 * QUERY_BLOCK


@pytest.mark.parametrize("count", [0, 1, 2, 63, 1285])
def test_block_alignment_keeps_all_sequences_and_most_start_or_end_with_a_block(count: int) -> None:
    lengths = np.random.default_rng(count).integers(5, 181, count)
    order = block_aligned_order(lengths)

    assert sorted(order) == list(range(count))
    if count > 1000:
        shares = [np.mean(np.cumsum(chosen) % QUERY_BLOCK == 0) for chosen in (lengths, lengths[order])]
        assert shares[0] < 0.05
        assert shares[1] > 0.4
