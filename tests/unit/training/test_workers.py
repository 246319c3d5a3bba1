"""Several workers train on the examples of one, and end with the same error on all of them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn

from rayrank.core.config import ListwiseConfig, PhaseConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.training.data import Inputs
from rayrank.training.loop import fit
from rayrank.training.phases.listwise import Listwise

from .conftest import tiny_model
from .test_loop import Kept
from .test_sdnet_phase import model as sdnet_model, phase as sdnet_phase

# The last batch of an epoch has one list, fewer than there are workers.
CONFIG = ListwiseConfig(epochs=2, batch_size=5, lr=1e-3, negatives=4)


class Watched(Listwise):
    """Remembers the lists that this worker trained on."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs, CONFIG, TrainingConfig(seed=3))
        self.seen: list[tuple[int, ...]] = []

    def prepare(self, model: nn.Module, examples: Any) -> Any:
        if model.training:  # not a look at the probes, which has a copy in evaluation mode
            self.seen += [(query, *passages.tolist()) for query, passages, _ in examples]
        return super().prepare(model, examples)


def train(inputs: Inputs, model: nn.Module, phase: Watched | None = None, save_every: int = 500) -> float:
    fitted = fit(
        model, phase or Watched(inputs), CONFIG, training=TrainingConfig(seed=1), device=torch.device("cpu"),
        checkpoint=Kept(), log=lambda line: None, save_every=save_every,
    )  # fmt: skip
    return fitted.state.best


def _seen(inputs: Inputs) -> list[tuple[int, ...]]:
    phase = Watched(inputs)
    train(inputs, nn.parallel.DistributedDataParallel(tiny_model(1, 0.1)), phase)
    return phase.seen


def with_one_dev_query(inputs: Inputs) -> Inputs:
    splits = {**inputs.data.splits, "dev": inputs.data.splits["dev"].take(np.array([0]))}
    return replace(inputs, data=replace(inputs.data, splits=splits))


def _dev_of_one_query(inputs: Inputs) -> float:
    torch.manual_seed(0)
    return train(with_one_dev_query(inputs), nn.parallel.DistributedDataParallel(tiny_model(1, 0.0)))


class NanOnOneWorker(Watched):
    def evaluate(self, model: nn.Module, *arguments: int) -> Any:
        if dist.get_rank() == 1:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)
        return super().evaluate(model, *arguments)


def _error(inputs: Inputs) -> str:
    with pytest.raises(DatasetError) as raised:
        train(inputs, nn.parallel.DistributedDataParallel(tiny_model(1, 0.0)), NanOnOneWorker(inputs))
    return str(raised.value)


def _trained_sdnet(inputs: Inputs, wrap: Callable[[nn.Module], nn.Module] = nn.parallel.DistributedDataParallel) -> Any:
    """The trained weights of SDNet, whose frozen encoder has no gradients to exchange."""
    model = sdnet_model()
    fit(
        wrap(model), sdnet_phase(inputs), PhaseConfig(max_steps=3, batch_size=6, lr=1e-3), training=TrainingConfig(),
        device=torch.device("cpu"), checkpoint=Kept(), log=lambda line: None,
    )  # fmt: skip
    return {name: weights for name, weights in model.state_dict().items() if not name.startswith("encoder.")}


def _worker(rank: int, inputs: Inputs, folder: str) -> None:
    # A worker that is left alone in a collective fails after the timeout.
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2, timeout=limit)
    torch.set_num_threads(1)
    results = {work.__name__: work(inputs) for work in (_seen, _dev_of_one_query, _error, _trained_sdnet)}
    torch.save(results, f"{folder}/results-{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def on_two_workers(
    inputs: Inputs, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Callable[..., Any]], list[Any]]:
    """What each worker returns from a function; both processes are started once for all tests."""
    folder = tmp_path_factory.mktemp("workers")
    multiprocessing.spawn(_worker, args=(inputs, str(folder)), nprocs=2)
    results = [torch.load(folder / f"results-{rank}.pt") for rank in range(2)]
    return lambda work: [result[work.__name__] for result in results]


def test_two_workers_see_the_examples_that_one_sees(inputs: Inputs, on_two_workers: Any) -> None:
    alone = Watched(inputs)
    train(inputs, tiny_model(1, 0.1), alone)

    first, second = on_two_workers(_seen)

    assert len(alone.seen) == 2 * alone.num_examples()
    assert set(first) | set(second) == set(alone.seen)
    # The worker without a list in the last batch of an epoch takes the other's, with weight 0.
    assert len(first) + len(second) == len(alone.seen) + 2
    assert len(set(first) & set(second)) == 2


def test_two_workers_train_the_sdnet_that_one_trains(inputs: Inputs, on_two_workers: Any) -> None:
    alone = _trained_sdnet(inputs, wrap=lambda model: model)

    first, second = on_two_workers(_trained_sdnet)

    for name, weights in alone.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], weights, rtol=1e-3, atol=1e-4)


def test_checkpoints_change_no_weight(inputs: Inputs) -> None:
    models = []
    for save_every in (1, 500):
        torch.manual_seed(0)
        models.append(tiny_model(1, 0.1))
        train(inputs, models[-1], save_every=save_every)

    for name, weights in models[0].state_dict().items():
        assert torch.equal(weights, models[1].state_dict()[name]), name


def test_a_worker_without_dev_queries_measures_with_the_others(inputs: Inputs, on_two_workers: Any) -> None:
    torch.manual_seed(0)
    alone = train(with_one_dev_query(inputs), tiny_model(1, 0.0))

    assert on_two_workers(_dev_of_one_query) == [pytest.approx(alone)] * 2


def test_a_score_that_is_not_a_number_on_one_worker_is_an_error_on_all(on_two_workers: Any) -> None:
    first, second = on_two_workers(_error)

    assert first == second
    assert "score that is not a number" in first
