"""fp8 layers give nearly the scores of float32, and models or devices without support for fp8 are refused."""

import copy

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from rayrank.core.config import StrmConfig
from rayrank.core.errors import ConfigError
from rayrank.models.encoder import Encoder
from rayrank.models.inference.fp8 import Fp8Linear, check_fp8, gelu, use_fp8_layers
from rayrank.models.inference.prepare import compile_for_scoring
from rayrank.models.reranker import Reranker
from tests.unit.models.conftest import CPU, FORMS, GPU, model, scores

PLAIN_MASK_BIAS = [FORMS[name] for name in ("off", "mask", "bias")]


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
@pytest.mark.parametrize("form", PLAIN_MASK_BIAS, ids=lambda form: form.form)
def test_fp8_scores_correlate_with_float32_scores(form: StrmConfig, device: torch.device) -> None:
    reranker = model(form, spread=0.3).to(device)
    expected = scores(reranker, 64)
    reranker.encoder.bfloat16()
    use_fp8_layers(reranker.encoder.base)
    found = scores(reranker, 64)

    assert torch.corrcoef(torch.stack([expected, found]))[0, 1] > 0.95
    assert not torch.equal(expected, found)
    assert sum(isinstance(part, Fp8Linear) for part in reranker.modules()) == 4 * 3
    assert not any(isinstance(part, nn.Linear) for part in reranker.encoder.base.encoder.modules())


def test_other_activations_are_kept() -> None:
    reranker = model(StrmConfig(), spread=0.3, activation="relu")
    use_fp8_layers(reranker.encoder.base)

    assert not any(part.after_gelu for part in reranker.modules() if isinstance(part, Fp8Linear))
    assert sum(isinstance(part, nn.ReLU) for part in reranker.modules()) == 3


@pytest.mark.parametrize("after_gelu", [False, True])
def test_fp8_layers_are_accurate_for_rows_of_any_magnitude(after_gelu: bool) -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 32)
    nn.init.zeros_(linear.bias)
    quantized = Fp8Linear(copy.deepcopy(linear).bfloat16(), after_gelu)
    # Row 3 is negative, where GELU is small; tiny inputs, whose GELU is nearly zero, are tested without GELU only.
    sizes = [0.3, 1.0, 50.0, 1.0, 0.0] if after_gelu else [1e-6, 1e-2, 50.0, 1.0, 0.0]
    states = torch.randn(5, 64) * torch.tensor(sizes)[:, None]
    states[3] = -states[3].abs()
    expected = linear(nn.functional.gelu(states, approximate="tanh") if after_gelu else states)
    found = quantized(states.bfloat16()[None])[0].float()

    assert torch.equal(found[4], torch.zeros(32))
    assert ((found - expected).norm(dim=1)[:4] < 0.08 * expected.norm(dim=1)[:4]).all()


def test_gelu_written_with_a_sigmoid_equals_its_tanh_form() -> None:
    values = torch.linspace(-20, 20, 4001)

    assert torch.allclose(gelu(values), nn.functional.gelu(values, approximate="tanh"), atol=1e-5)


def test_fp8_is_refused_without_a_gpu() -> None:
    with pytest.raises(ConfigError, match=r"^backend=torch-fp8 cannot be used on a CPU: .*; set backend=torch\.$"):
        compile_for_scoring(model(StrmConfig()), fp8=True)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ({"hidden_size": 24, "num_attention_heads": 1}, "layer of width 24"),
        ({"num_attention_heads": 4}, "the encoder's heads have 8 dimensions, and .* needs 16"),
    ],
)
def test_encoders_that_fp8_does_not_support_are_refused_on_any_device(shape: dict[str, int], reason: str) -> None:
    base = BertModel(BertConfig(**{"hidden_size": 32, "num_hidden_layers": 1} | shape))
    with pytest.raises(ConfigError, match=rf"^backend=torch-fp8 cannot be used: .*{reason}.*; set backend=torch\.$"):
        check_fp8(Reranker(Encoder(base, None), 1))
