"""Training steps: packed rows have few shapes, and CUDA graphs train as the kernels that they replay."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rayrank.core.config import ListwiseConfig, PhaseConfig, PointwiseConfig, TrainingConfig
from rayrank.models.batches import pack
from rayrank.models.packed_rows import RowShape
from rayrank.models.pair_texts import PairTexts
from rayrank.text.ragged import Ragged
from rayrank.training import steps
from rayrank.training.data import Inputs
from rayrank.training.phases.listwise import Listwise
from rayrank.training.phases.pointwise import Pointwise
from rayrank.training.steps import TrainStep
from tests.unit.models import conftest as modeling

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def drawn(count: int, seed: int) -> np.ndarray:
    return np.clip(np.random.default_rng(seed).gamma(4, 25, count).astype(np.int64), 4, 180)


def test_packed_rows_for_training_have_few_shapes_and_little_padding() -> None:
    batches = [drawn(128, seed) for seed in range(200)]
    rows = [RowShape.of(lengths, 180) for lengths in batches]

    assert len(set(rows)) < 12
    assert all(lengths.sum() <= row.size < lengths.sum() * 33 / 32 for lengths, row in zip(batches, rows, strict=True))


@pytest.mark.parametrize("count", [1, 7, 128])
def test_a_packed_row_for_training_has_the_shape_of_its_lengths(count: int) -> None:
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


def step_of(model: nn.Module, inputs: Inputs, config: PhaseConfig, of: Any = None) -> tuple[TrainStep, Any]:
    """Return the training step of a phase, and a batch."""
    of = of or (Listwise if isinstance(config, ListwiseConfig) else Pointwise)
    phase = of(inputs, config, TrainingConfig(seed=3))
    step = TrainStep(model, phase, torch.optim.AdamW(model.parameters(), 1e-3, fused=True), config)
    return step, phase.examples(0)[: config.batch_size]


def losses(step: TrainStep, examples: Any, seeds: range = range(30)) -> torch.Tensor:
    """Return the loss and the gradient norm of several steps on the same batch, each with its own dropout."""
    return torch.stack([step(examples, seed) for seed in seeds])


def losses_without_graphs(model: nn.Module, inputs: Inputs, config: PhaseConfig) -> torch.Tensor:
    step, examples = step_of(model, inputs, config)
    step._uses_graphs = False
    return losses(step, examples)


def num_graphs(step: TrainStep) -> int:
    return len(step._graphs._graphs) if step._graphs is not None else 0


@needs_gpu
@pytest.mark.parametrize("form", modeling.FORMS)
@pytest.mark.parametrize(
    "config",
    [PointwiseConfig(batch_size=12, micro_batch_size=4, negatives=3), ListwiseConfig(batch_size=8, negatives=4)],
    ids=["pointwise, in pieces", "listwise"],
)
def test_steps_with_cuda_graphs_train_as_steps_without(form: str, config: PhaseConfig, inputs: Inputs) -> None:
    plain = modeling.model(modeling.FORMS[form], spread=0.1).cuda().train()
    if isinstance(config, PointwiseConfig):
        plain.head = nn.Linear(32, 2, device="cuda")
    replayed = copy.deepcopy(plain)
    before = copy.deepcopy(plain.state_dict())

    expected = losses_without_graphs(plain, inputs, config)
    step, examples = step_of(replayed, inputs, config)
    found = losses(step, examples)

    assert num_graphs(step)
    assert torch.allclose(expected, found, rtol=1e-3)
    assert len({round(float(loss), 6) for loss, _ in found}) > 20  # dropout differs from step to step
    for name, weights in plain.state_dict().items():
        assert torch.allclose(weights, replayed.state_dict()[name], rtol=1e-2, atol=1e-4), name
        assert not torch.equal(weights, before[name]) or not weights.is_floating_point(), name


@needs_gpu
def test_without_memory_for_cuda_graphs_training_continues_without_them(inputs: Inputs) -> None:
    class Greedy(Listwise):
        def loss(self, model: nn.Module, prepared: Any) -> tuple[torch.Tensor, torch.Tensor]:
            found = super().loss(model, prepared)
            if torch.cuda.is_current_stream_capturing():
                raise torch.OutOfMemoryError("no room")
            return found

    config = ListwiseConfig(batch_size=8, negatives=4)
    plain = modeling.model(modeling.FORMS["off"], spread=0.1).cuda().train()
    other = copy.deepcopy(plain)

    expected = losses_without_graphs(plain, inputs, config)
    step, examples = step_of(other, inputs, config, Greedy)
    found = losses(step, examples)

    assert not num_graphs(step)
    assert torch.allclose(expected, found, rtol=1e-3)


@needs_gpu
def test_a_long_training_compiles_its_layers_and_captures_new_graphs(
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

    expected = losses_without_graphs(plain, inputs, config)
    step, examples = step_of(other, inputs, config)
    before = losses(step, examples, range(5))
    assert num_graphs(step)
    monkeypatch.setattr(steps, "COMPILE_AFTER", 0.0)
    compiled = losses(step, examples, range(5, 6))
    assert not num_graphs(step)
    found = torch.cat([before, compiled, losses(step, examples, range(6, 30))])

    assert num_graphs(step)
    assert any(module._compiled_call_impl for module in other.modules())
    # Compiled kernels round differently, and the difference grows with every step.
    assert torch.allclose(expected[:, 0], found[:, 0], rtol=0.05)
    assert expected[-1, 0] < expected[0, 0] / 2
