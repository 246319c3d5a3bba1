"""Steps: rows have few shapes, and what is replayed on a GPU is what was done there before."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayrank.core.config import ListwiseConfig, PhaseConfig, PointwiseConfig
from rayrank.models.batches import PairTexts, RowShape, pack
from rayrank.text.ragged import Ragged
from rayrank.training import steps
from rayrank.training.phases import Inputs, Listwise, Pointwise
from rayrank.training.steps import Learner
from tests.unit.models import conftest as modeling

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def drawn(count: int, seed: int) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).gamma(4, 25, count).astype(np.int64), 4, 180)


def test_rows_to_learn_from_have_few_shapes_and_little_filling() -> None:
    batches = [drawn(128, seed) for seed in range(200)]
    rows = [RowShape.of(lengths, 180) for lengths in batches]

    assert len(set(rows)) < 12
    assert all(lengths.sum() <= row.size < lengths.sum() * 33 / 32 for lengths, row in zip(batches, rows, strict=True))


@pytest.mark.parametrize("count", [1, 7, 128])
def test_a_row_has_its_shape_whatever_it_holds(count: int) -> None:
    rng = np.random.default_rng(count)
    passages = Ragged.of([rng.integers(3, 60, size) for size in rng.integers(0, 60, 300)])
    source = PairTexts(Ragged.of([[1, 5, 2]]), passages, modeling.template(24))
    queries, rows = np.zeros(count, np.int64), rng.integers(0, 300, count)

    packed = source.packed(queries, rows, 4096, CPU)
    batch = source.packed_for_training(queries, rows, CPU)

    expected = RowShape.of(source.lengths(queries, rows), 24)
    total = int(source.lengths(queries, rows).sum())
    assert (len(batch.ids), len(batch.offsets), batch.max_input_length) == expected
    assert torch.equal(batch.ids[:total], packed.ids[:total])
    assert torch.equal(batch.offsets[: count + 1], packed.offsets[: count + 1])
    assert (batch.offsets.diff() >= 0).all()
    assert batch.offsets.diff().max() <= 24
    assert batch.offsets[-1] == expected.size


@pytest.mark.parametrize("form", modeling.FORMS)
def test_packing_a_rectangle_changes_neither_states_nor_gradients(form: str) -> None:
    source, (queries, passages), reranker = modeling.texts(), modeling.rows(12), modeling.model(modeling.FORMS[form])
    padded = source.padded(queries, passages, CPU)
    batch = pack(padded, source.template)
    found = []
    for inputs in (padded, batch):
        reranker.zero_grad()
        logits = reranker(inputs)
        logits.square().sum().backward()
        found.append((logits.detach(), reranker.encoder.base.get_input_embeddings().weight.grad.clone()))

    assert torch.allclose(found[0][0], found[1][0], atol=1e-5)
    assert torch.allclose(found[0][1], found[1][1], rtol=1e-4, atol=1e-5)
    assert torch.equal(batch.seq, source.packed_for_training(queries, passages, CPU).seq)


def learner_of(model: nn.Module, inputs: Inputs, config: PhaseConfig, of: Any = None) -> tuple[Learner, Any]:
    """Return what learns, and a batch."""
    of = of or (Listwise if isinstance(config, ListwiseConfig) else Pointwise)
    phase = of(inputs, config, seed=3)
    learner = Learner(model, phase, torch.optim.AdamW(model.parameters(), 1e-3, fused=True), config)
    return learner, phase.examples(0)[: config.batch_size]


def told(learner: Learner, examples: Any, seeds: range = range(30)) -> torch.Tensor:
    """Return what steps say, each with a seed."""
    return torch.stack([learner(examples, seed) for seed in seeds])


def as_they_are(model: nn.Module, inputs: Inputs, config: PhaseConfig) -> torch.Tensor:
    """Return what steps say that are never recorded."""
    learner, examples = learner_of(model, inputs, config)
    learner._may_record = False
    return told(learner, examples)


def recorded(learner: Learner) -> int:
    return len(learner._recorder._recorded) if learner._recorder is not None else 0


@needs_gpu
@pytest.mark.parametrize("form", modeling.FORMS)
@pytest.mark.parametrize(
    "config",
    [PointwiseConfig(batch_size=12, micro_batch_size=4, negatives=3), ListwiseConfig(batch_size=8, negatives=4)],
    ids=["pointwise, in pieces", "listwise"],
)
def test_replayed_steps_learn_what_steps_as_they_are_learn(form: str, config: PhaseConfig, inputs: Inputs) -> None:
    plain = modeling.model(modeling.FORMS[form], spread=0.1).cuda().train()
    if isinstance(config, PointwiseConfig):
        plain.head = nn.Linear(32, 2, device="cuda")
    replayed = copy.deepcopy(plain)
    before = copy.deepcopy(plain.state_dict())

    expected = as_they_are(plain, inputs, config)
    learner, examples = learner_of(replayed, inputs, config)
    found = told(learner, examples)

    assert recorded(learner)
    assert torch.allclose(expected, found, rtol=1e-3)
    assert len({round(float(loss), 6) for loss, _ in found}) > 20  # dropout differs from step to step
    for name, weights in plain.state_dict().items():
        assert torch.allclose(weights, replayed.state_dict()[name], rtol=1e-2, atol=1e-4), name
        assert not torch.equal(weights, before[name]) or not weights.is_floating_point(), name


@needs_gpu
def test_where_recording_takes_too_much_memory_steps_go_on_without(inputs: Inputs) -> None:
    class Greedy(Listwise):
        def loss(self, model: nn.Module, prepared: Any) -> tuple[torch.Tensor, torch.Tensor]:
            found = super().loss(model, prepared)
            if torch.cuda.is_current_stream_capturing():
                raise torch.OutOfMemoryError("no room")
            return found

    config = ListwiseConfig(batch_size=8, negatives=4)
    plain = modeling.model(modeling.FORMS["off"], spread=0.1).cuda().train()
    other = copy.deepcopy(plain)

    expected = as_they_are(plain, inputs, config)
    learner, examples = learner_of(other, inputs, config, Greedy)
    found = told(learner, examples)

    assert not recorded(learner)
    assert torch.allclose(expected, found, rtol=1e-3)


@needs_gpu
def test_layers_are_compiled_when_training_goes_on_for_long_and_recorded_anew(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ListwiseConfig(batch_size=8, negatives=4)
    plain = modeling.model(modeling.FORMS["mask"], spread=0.1).cuda().train()
    for module in plain.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for layer in plain.encoder.base.encoder.layer:
        layer.attention.self.dropout.p = 0.0
    other = copy.deepcopy(plain)

    expected = as_they_are(plain, inputs, config)
    learner, examples = learner_of(other, inputs, config)
    before = told(learner, examples, range(5))
    assert recorded(learner)
    monkeypatch.setattr(steps, "LONG", 0.0)
    compiled = told(learner, examples, range(5, 6))
    assert not recorded(learner)
    found = torch.cat([before, compiled, told(learner, examples, range(6, 30))])

    assert recorded(learner)
    assert any(module._compiled_call_impl for module in other.modules())
    # Kernels that round otherwise learn apart, a little more with every step.
    assert torch.allclose(expected[:, 0], found[:, 0], rtol=0.05)
    assert expected[-1, 0] < expected[0, 0] / 2
