"""Fused layers give the same scores, except that GELU's tanh form rounds differently."""

import copy

import pytest
import torch
from torch import nn

from rayrank.core.config import StrmConfig
from rayrank.models.inference.fused_layers import LinearGelu, fuse_layers
from tests.unit.models.conftest import FORMS, model, scores

PLAIN_MASK_BIAS = [FORMS[name] for name in ("off", "mask", "bias")]


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("form", PLAIN_MASK_BIAS, ids=lambda form: form.form)
def test_fused_layers_do_not_change_scores(form: StrmConfig, kind: str, packed: bool) -> None:
    reranker = model(form, kind, spread=0.3)
    expected = scores(reranker, packed=packed)
    # Twice: fusing a fused model must change nothing.
    fuse_layers(reranker.encoder.base)
    fuse_layers(reranker.encoder.base)

    assert torch.allclose(scores(reranker, packed=packed), expected, atol=1e-5)
    widths = [part.out_features for part in reranker.encoder.base.modules() if isinstance(part, nn.Linear)]
    assert widths == [96, 32, 64, 32] * 3
    assert sum(isinstance(part, LinearGelu) for part in reranker.modules()) == 3


def test_other_activations_are_not_fused() -> None:
    reranker = model(StrmConfig(), spread=0.3, activation="relu")
    expected = scores(reranker)
    fuse_layers(reranker.encoder.base)

    assert torch.allclose(scores(reranker), expected, atol=1e-6)
    assert not any(isinstance(part, LinearGelu) for part in reranker.modules())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("form", PLAIN_MASK_BIAS, ids=lambda form: form.form)
def test_on_a_gpu_the_tanh_form_of_gelu_changes_scores_less_than_bfloat16_does(form: StrmConfig) -> None:
    exact = model(form, spread=0.3).cuda()
    half = copy.deepcopy(exact)
    half.encoder.bfloat16()
    fused = copy.deepcopy(half)
    fuse_layers(fused.encoder.base)
    expected, rounded, found = (scores(reranker, 64, packed=True) for reranker in (exact, half, fused))

    assert (found - expected).square().mean() < 1.5 * (rounded - expected).square().mean()
