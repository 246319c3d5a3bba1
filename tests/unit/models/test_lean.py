"""A model made fast for a GPU scores as it did, to the last digits with fewer products, nearly so in eight bits."""

import copy

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from rayrank.core.config import StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.encoder import Encoder
from rayrank.models.inference.fused_layers import (
    LinearGelu,
    LinearOfEightBits,
    check_eight_bits,
    fuse,
    gelu,
    use_eight_bits,
)
from rayrank.models.inference.scorer import hasten
from rayrank.models.reranker import Reranker
from tests.unit.models.conftest import CPU, FORMS, GPU, model, rows, texts

PLAIN_MASK_BIAS = [FORMS[name] for name in ("off", "mask", "bias")]


@torch.no_grad()
def scores(reranker: Reranker, count: int = 12, packed: bool = False) -> torch.Tensor:
    source, device = texts(), next(reranker.parameters()).device
    batch = source.packed(*rows(count), 64 * count, device) if packed else source.padded(*rows(count), device)
    return reranker(batch)[:, 0].float().cpu()


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
@pytest.mark.parametrize("form", PLAIN_MASK_BIAS, ids=lambda form: form.form)
def test_fewer_products_change_no_score(form: StrmConfig, kind: str, packed: bool) -> None:
    reranker = model(form, kind, spread=0.3)
    expected = scores(reranker, packed=packed)
    # Twice: who makes a model faster need not know whether somebody has.
    fuse(reranker.encoder.base)
    fuse(reranker.encoder.base)

    assert torch.allclose(scores(reranker, packed=packed), expected, atol=1e-5)
    widths = [part.out_features for part in reranker.encoder.base.modules() if isinstance(part, nn.Linear)]
    assert widths == [96, 32, 64, 32] * 3
    assert sum(isinstance(part, LinearGelu) for part in reranker.modules()) == 3


def test_another_activation_stays_what_it_is() -> None:
    reranker = model(StrmConfig(), spread=0.3, activation="relu")
    expected = scores(reranker)
    fuse(reranker.encoder.base)
    assert torch.allclose(scores(reranker), expected, atol=1e-6)
    assert not any(isinstance(part, LinearGelu) for part in reranker.modules())

    small = model(StrmConfig(), spread=0.3, activation="relu")
    use_eight_bits(small.encoder.base)
    assert not any(part.after_gelu for part in small.modules() if isinstance(part, LinearOfEightBits))
    assert sum(isinstance(part, nn.ReLU) for part in small.modules()) == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("form", PLAIN_MASK_BIAS, ids=lambda form: form.form)
def test_on_a_gpu_gelu_by_tanh_changes_scores_by_less_than_half_precision_does(form: StrmConfig) -> None:
    exact = model(form, spread=0.3).cuda()
    half = copy.deepcopy(exact)
    half.encoder.bfloat16()
    fused = copy.deepcopy(half)
    fuse(fused.encoder.base)
    expected, rounded, found = (scores(reranker, 64, packed=True) for reranker in (exact, half, fused))

    assert (found - expected).square().mean() < 1.5 * (rounded - expected).square().mean()


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("form", PLAIN_MASK_BIAS, ids=lambda form: form.form)
def test_scores_of_eight_bits_are_nearly_those_of_all_bits(form: StrmConfig, device: torch.device) -> None:
    reranker = model(form, spread=0.3).to(device)
    expected = scores(reranker, 64)
    reranker.encoder.bfloat16()
    use_eight_bits(reranker.encoder.base)
    found = scores(reranker, 64)

    assert torch.corrcoef(torch.stack([expected, found]))[0, 1] > 0.95
    assert not torch.equal(expected, found)
    assert sum(isinstance(part, LinearOfEightBits) for part in reranker.modules()) == 4 * 3
    assert not any(isinstance(part, nn.Linear) for part in reranker.encoder.base.encoder.modules())


@pytest.mark.parametrize("after_gelu", [False, True])
def test_rows_of_any_size_keep_their_place_in_eight_bits(after_gelu: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 32)
    nn.init.zeros_(linear.bias)
    eight = LinearOfEightBits(copy.deepcopy(linear).bfloat16(), after_gelu)
    # All of a row may be below zero, where GELU leaves little; and it leaves next to nothing of what is tiny.
    sizes = [0.3, 1.0, 50.0, 1.0, 0.0] if after_gelu else [1e-6, 1e-2, 50.0, 1.0, 0.0]
    states = torch.randn(5, 64) * torch.tensor(sizes)[:, None]
    states[3] = -states[3].abs()
    expected = linear(nn.functional.gelu(states, approximate="tanh") if after_gelu else states)
    found = eight(states.bfloat16()[None])[0].float()

    assert torch.equal(found[4], torch.zeros(32))
    assert ((found - expected).norm(dim=1)[:4] < 0.08 * expected.norm(dim=1)[:4]).all()


def test_gelu_as_a_sigmoid_is_gelu_by_tanh() -> None:
    values = torch.linspace(-20, 20, 4001)

    assert torch.allclose(gelu(values), nn.functional.gelu(values, approximate="tanh"), atol=1e-5)


def test_eight_bits_without_a_gpu_are_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^backend=torch-fp8 cannot be used on a CPU: .* GPU .*; set it to torch\.$"):
        hasten(model(StrmConfig()), eight_bits=True)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [({"hidden_size": 24, "num_attention_heads": 1}, "24 wide"), ({"num_attention_heads": 4}, "heads of 16")],
)
def test_layers_that_no_gpu_takes_in_eight_bits_are_refused_wherever_the_model_is(
    shape: dict[str, int], reason: str
) -> None:
    base = BertModel(BertConfig(**{"hidden_size": 32, "num_hidden_layers": 1} | shape))
    with pytest.raises(ConfigError, match=rf"^backend=torch-fp8 cannot be used: .*{reason}.*; set it to torch\.$"):
        check_eight_bits(Reranker(Encoder(base, None), 1))
