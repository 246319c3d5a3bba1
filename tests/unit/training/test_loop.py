"""The loop resumes to the same weights, shares a batch among workers, and stops if training has failed."""

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from transformers import BertConfig, BertModel

from rayrank.core.config import ListwiseConfig, PhaseConfig, PointwiseConfig, StrmConfig, TrainingConfig
from rayrank.core.errors import TrainingStopped
from rayrank.models.encoder import Encoder
from rayrank.training.data import Inputs
from rayrank.training.loop import Log, State, fit
from rayrank.training.phases.listwise import Listwise
from rayrank.training.phases.pointwise import Pointwise
from rayrank.training.steps import adamw

from .conftest import Kept, tiny_model

POINTWISE = PointwiseConfig(epochs=3, batch_size=8, lr=1e-3, negatives=3)
# The last batch of an epoch is one list, fewer than two workers.
LISTWISE = ListwiseConfig(epochs=3, batch_size=5, lr=1e-3, negatives=4)


def phase_of(inputs: Inputs, config: PhaseConfig) -> Pointwise | Listwise:
    if isinstance(config, ListwiseConfig):
        return Listwise(inputs, config, TrainingConfig(seed=3))
    assert isinstance(config, PointwiseConfig)
    return Pointwise(inputs, config, TrainingConfig(seed=3))


def train(
    inputs: Inputs,
    config: PhaseConfig,
    kept: Kept,
    log: Callable[[Log], None] = lambda line: None,
    dropout: float = 0.1,
) -> tuple[nn.Module, State]:
    torch.manual_seed(0)
    model = tiny_model(1 if isinstance(config, ListwiseConfig) else 2, dropout)
    state, _ = fit(
        model,
        phase_of(inputs, config),
        config,
        training=TrainingConfig(seed=1),
        device=torch.device("cpu"),
        checkpoint=kept,
        log=log,
    )
    return model, state


@pytest.mark.parametrize("config", [POINTWISE, LISTWISE], ids=["pointwise", "listwise"])
def test_a_resumed_training_ends_with_the_weights_of_an_uninterrupted_one(inputs: Inputs, config: PhaseConfig) -> None:
    unbroken, _ = train(inputs, config, Kept())
    kept = Kept(dies_after=1)
    with pytest.raises(KeyboardInterrupt):
        train(inputs, config, kept)

    resumed, _ = train(inputs, config, kept)

    for name, weights in unbroken.state_dict().items():
        assert torch.equal(weights, resumed.state_dict()[name]), name


@pytest.mark.parametrize("config", [POINTWISE, LISTWISE], ids=["pointwise", "listwise"])
def test_training_lowers_the_loss_and_remembers_its_best_epoch(inputs: Inputs, config: PhaseConfig) -> None:
    lines: list[Log] = []
    longer = config.model_copy(update={"epochs": 60, "lr": 2e-3})
    phase = phase_of(inputs, config)

    model, state = train(inputs, longer, Kept(), lines.append)

    with torch.no_grad():
        loss, _ = phase.loss(model.eval(), phase.prepare(model, phase.examples(0)))  # type: ignore[arg-type]
    # One pair in four is relevant: knowing just that gives a loss of 0.562.
    prior = 0.562 if config is POINTWISE else math.log(5)
    assert loss < 0.8 * prior
    ends = [line for line in lines if line.dev is not None]
    assert len(ends) == 60
    assert state.best == max(line.dev or 0 for line in ends)
    assert state.best_step == next(line.step for line in ends if line.dev == state.best)


class Measured(Listwise):
    """A phase whose dev metric takes given values, one measurement after another."""

    def __init__(self, inputs: Inputs, values: list[float], measures_start: bool) -> None:
        super().__init__(inputs, LISTWISE, TrainingConfig(seed=3))
        self.values, self.measures_start = values, measures_start

    def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
        return self.values.pop(0), 1


def fit_measured(phase: Measured, kept: Kept, patience: int | None = None, **changes: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = tiny_model(1, 0.1)
    config = LISTWISE.model_copy(update={"epochs": 6, **changes})
    training = TrainingConfig(seed=1, patience=patience)
    found = fit(
        model, phase, config, training=training, device=torch.device("cpu"), checkpoint=kept, log=lambda line: None
    )
    return model, found


def test_weights_that_no_step_improves_are_kept(inputs: Inputs) -> None:
    torch.manual_seed(0)
    start = tiny_model(1, 0.1).state_dict()
    model, (state, weights) = fit_measured(Measured(inputs, [0.9, *[0.5] * 6], measures_start=True), Kept())

    assert (state.best, state.best_step) == (0.9, 0)
    assert all(torch.equal(weights[name], start[name]) for name in start)
    assert not all(torch.equal(model.state_dict()[name], start[name]) for name in start)


def test_training_ends_when_dev_has_not_improved_for_as_long_as_patience_says(inputs: Inputs) -> None:
    phase = Measured(inputs, [0.1, 0.5, 0.4, 0.3, 0.9, 0.9], measures_start=False)
    kept = Kept()
    _, (state, _) = fit_measured(phase, kept, patience=2)
    per_epoch = -(-phase.num_examples() // LISTWISE.batch_size)

    assert (state.step, state.best_step) == (4 * per_epoch, 2 * per_epoch)
    # A training that is started again after its end does not go on.
    assert fit_measured(phase, kept, patience=2)[1].state.step == state.step
    assert phase.values == [0.9, 0.9]


def test_a_step_is_logged_before_its_checkpoint_and_training_time_excludes_dev_measurements(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []

    class Slow(Listwise):
        def evaluate(self, model: nn.Module, rank: int = 0, world: int = 1) -> tuple[float, int]:
            time.sleep(0.5)
            return 0.5, 1

    class Later(Kept):
        def save(self, state: dict[str, Any], log: Log) -> None:
            assert told[-1] == log.step == state["state"]["step"]
            time.sleep(0.5)
            super().save(state, log)

    monkeypatch.setattr(f"{__name__}.Listwise", Slow)
    kept = Later()
    started = time.monotonic()
    _, state = train(inputs, LISTWISE, kept, lambda line: told.append(line.step))

    waited = 0.5 * (3 + len(kept.states))
    assert 0 < state.seconds < time.monotonic() - started - waited + 0.1


def test_biases_including_strms_have_no_weight_decay() -> None:
    words = np.zeros(50, np.int8)
    encoder = Encoder(
        BertModel(
            BertConfig(vocab_size=50, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        ),
        words,
        StrmConfig(form="bias"),
    )
    assert encoder.strm_bias is not None

    decayed, others = (group["params"] for group in adamw(encoder, POINTWISE).param_groups)

    assert any(weights is encoder.strm_bias for weights in others)
    assert all(weights.ndim == 2 for weights in decayed)
    assert len(decayed) + len(others) == len(list(encoder.parameters()))


@pytest.mark.parametrize("left", [0.0, 0.35, 1.0])
def test_the_learning_rate_ends_at_the_configured_share(inputs: Inputs, left: float) -> None:
    lines: list[Log] = []
    config = LISTWISE.model_copy(update={"lr_end": left, "warmup": 0.2})

    train(inputs, config, Kept(), lines.append)

    assert lines[-1].lr == pytest.approx(config.lr * left)
    assert [line.lr for line in lines] == sorted((line.lr for line in lines), reverse=True)


def test_dropout_is_on_from_the_first_step_even_for_a_model_in_eval_mode(inputs: Inputs) -> None:
    modes: list[bool] = []

    class Watched(Pointwise):
        def loss(self, model: nn.Module, prepared: Any) -> tuple[torch.Tensor, torch.Tensor]:
            # A look at the scores has a copy of it.
            if model is learning:
                modes.append(all(module.training for module in model.modules()))
            return super().loss(model, prepared)

    learning = tiny_model(2, 0.1).eval()
    fit(
        learning, Watched(inputs, POINTWISE, TrainingConfig(seed=3)), POINTWISE, training=TrainingConfig(seed=1),
        device=torch.device("cpu"), checkpoint=Kept(), log=lambda line: None,
    )  # fmt: skip

    assert modes
    assert all(modes)


def test_micro_batches_train_the_same_weights_as_whole_batches(inputs: Inputs) -> None:
    whole, _ = train(inputs, POINTWISE, Kept(), dropout=0.0)
    pieces, _ = train(inputs, POINTWISE.model_copy(update={"micro_batch_size": 3}), Kept(), dropout=0.0)

    for name, weights in whole.state_dict().items():
        assert torch.allclose(weights, pieces.state_dict()[name], atol=1e-4), name


def _worker(rank: int, inputs: Inputs, config: PhaseConfig, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(tiny_model(1 if isinstance(config, ListwiseConfig) else 2, 0.0))
    lines: list[Log] = []
    fit(
        model,
        phase_of(inputs, config),
        config,
        training=TrainingConfig(seed=1),
        device=torch.device("cpu"),
        checkpoint=Kept(),
        log=lines.append,
    )
    torch.save([(line.loss, line.dev) for line in lines], f"{folder}/lines-{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "config", [pytest.param(POINTWISE, id="pointwise", marks=pytest.mark.slow), pytest.param(LISTWISE, id="listwise")]
)
def test_two_workers_have_the_losses_and_dev_metrics_of_one(
    inputs: Inputs, config: PhaseConfig, tmp_path: Path
) -> None:
    alone: list[Log] = []
    train(inputs, config, Kept(), alone.append, dropout=0.0)

    multiprocessing.spawn(_worker, args=(inputs, config, str(tmp_path)), nprocs=2)

    for rank in range(2):
        together = torch.load(tmp_path / f"lines-{rank}.pt")
        assert [loss for loss, _ in together] == pytest.approx([line.loss for line in alone], abs=1e-4)
        assert [dev for _, dev in together] == pytest.approx([line.dev for line in alone], abs=1e-6)


def test_a_loss_of_nan_stops_the_training_before_a_checkpoint(inputs: Inputs) -> None:
    torch.manual_seed(0)
    model, kept = tiny_model(2, 0.0), Kept()
    with torch.no_grad():
        model.head.bias.fill_(torch.nan)

    with pytest.raises(TrainingStopped, match=r"The loss at step 1 is nan: lower the learning rate \(now 0\.001\)"):
        fit(
            model, phase_of(inputs, POINTWISE), POINTWISE, training=TrainingConfig(seed=1), device=torch.device("cpu"),
            checkpoint=kept, log=lambda line: None, save_every=1,
        )  # fmt: skip

    assert kept.load() is None


def test_a_gradient_of_nan_stops_the_training_before_a_checkpoint(inputs: Inputs) -> None:
    class Broken(Listwise):
        def loss(self, model: nn.Module, prepared: Any) -> tuple[torch.Tensor, torch.Tensor]:
            loss, scores = super().loss(model, prepared)
            # Nothing at all, whose gradient is infinite.
            return loss + (scores.sum() * 0).abs().sqrt(), scores

    kept = Kept()

    told = r"The gradient norm at step 1 is nan: lower the learning rate \(now 0\.001\)"
    with pytest.raises(TrainingStopped, match=told):
        fit(
            tiny_model(1, 0.0), Broken(inputs, LISTWISE, TrainingConfig(seed=3)), LISTWISE,
            training=TrainingConfig(seed=1), device=torch.device("cpu"), checkpoint=kept, log=lambda line: None,
            save_every=1,
        )  # fmt: skip

    assert kept.load() is None


@pytest.mark.parametrize("config", [POINTWISE, LISTWISE], ids=["pointwise", "listwise"])
def test_collapsed_scores_stop_the_training_even_if_dropout_makes_them_differ(
    inputs: Inputs, config: PhaseConfig
) -> None:
    torch.manual_seed(0)
    model = tiny_model(1 if config is LISTWISE else 2, dropout=0.1)
    # Scores that differ much at first: those of a fresh head are nearly equal.
    nn.init.normal_(model.head.weight)
    config = config.model_copy(update={"lr": 0.3, "epochs": 20})

    with pytest.raises(TrainingStopped, match=r"The scores collapsed: at step \d+ all inputs get the same score"):
        fit(
            model, phase_of(inputs, config), config, training=TrainingConfig(seed=1), device=torch.device("cpu"),
            checkpoint=Kept(), log=lambda line: None,
        )  # fmt: skip


def test_no_positive_is_ever_among_the_negatives(inputs: Inputs) -> None:
    split = inputs.data.splits["train"]
    positives = {int(query): set(split.positives[place].tolist()) for place, query in enumerate(split.queries)}
    pointwise, listwise = phase_of(inputs, POINTWISE), phase_of(inputs, LISTWISE)

    for epoch in range(5):
        assert all((passage in positives[query]) == (label == 1) for query, passage, label in pointwise.examples(epoch))
        for query, passages, labels in listwise.examples(epoch):
            assert all((p in positives[query]) == (y == 1) for p, y in zip(passages, labels, strict=True) if y >= 0)


def test_listwise_draws_other_negatives_than_pointwise(inputs: Inputs) -> None:
    # Two of six negatives each, so that many queries can differ.
    pointwise = phase_of(inputs, POINTWISE.model_copy(update={"negatives": 2}))
    listwise = phase_of(inputs, LISTWISE.model_copy(update={"negatives": 2}))

    pairs, lists = pointwise.examples(0), listwise.examples(0)

    drawn: dict[int, set[int]] = {query: set(passages[labels == 0].tolist()) for query, passages, labels in lists}
    shared = [drawn[query] == set(pairs[(pairs[:, 0] == query) & (pairs[:, 2] == 0), 1].tolist()) for query in drawn]
    assert len(shared) == 16
    assert sum(shared) < 6
    assert [query for query, *_ in lists] != list(dict.fromkeys(pairs[:, 0].tolist()))


def test_each_epoch_draws_other_negatives(inputs: Inputs) -> None:
    listwise = phase_of(inputs, LISTWISE)

    def drawn(epoch: int) -> list[tuple[Any, ...]]:
        return sorted((query, *sorted(passages.tolist())) for query, passages, _ in listwise.examples(epoch))

    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)
