"""DeepCT learns the recall of passage words: its targets, its loss, and what it holds out."""

import math

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from rayrank.core.config import DeepCtConfig, StrmConfig, TrainingConfig
from rayrank.core.errors import DatasetError
from rayrank.models.encoder import Encoder
from rayrank.models.term_weights import TermWeights
from rayrank.text.ragged import Ragged
from rayrank.text.template import Template
from rayrank.training import losses
from rayrank.training.loop import Log, fit
from rayrank.training.phases.deepct import NO_WORD, DeepCt, Examples
from tests.unit.models.conftest import CPU, GPU

TEMPLATE = Template(cls_id=1, sep_id=2, pad_id=0, length=16, query_length=14)
CONFIG = DeepCtConfig(epochs=4, batch_size=8, lr=2e-3, length=16)
IMPORTANT = 10


class Forgets:
    def load(self) -> None:
        return None

    def save(self, state: dict[str, object], log: Log) -> None:
        pass


def made_up(passages: int, seed: int = 2) -> Examples:
    """Words of one or two pieces, of which one word is in all queries and no other is in any; some have two windows."""
    rng = np.random.default_rng(seed)
    numbers, windows, targets = [], [], []
    for number in range(passages):
        for _ in range(1 + number % 3 // 2):
            words = rng.integers(IMPORTANT, 20, rng.integers(2, 7))
            numbers.append(number)
            windows.append(np.column_stack([words, 20 + words]).ravel())
            targets.append(np.column_stack([words == IMPORTANT, np.full(len(words), NO_WORD)]).ravel())
    return Examples(np.array(numbers), Ragged.of(windows), np.concatenate(targets).astype(np.float32))


def phase(passages: int = 200, seed: int = 3) -> DeepCt:
    return DeepCt(made_up(passages), TEMPLATE, CONFIG, seed)


def tiny_model(dropout: float = 0.0) -> TermWeights:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, hidden_dropout_prob=dropout, attn_implementation="sdpa",
    )  # fmt: skip
    return TermWeights(Encoder(BertModel(config), None, StrmConfig(form="off")))


def test_the_loss_is_the_squared_error_of_words_alone() -> None:
    weights = torch.tensor([[9.0, 0.5, 9.0], [0.0, -1.0, 9.0]], requires_grad=True)
    targets = torch.tensor([[-1.0, 1.0, -1.0], [0.0, 0.5, -1.0]])

    loss = losses.term_weights(weights, targets, num_words=4)

    # (0.5² + 0² + 1.5²) / 4
    assert loss.item() == pytest.approx(0.625)
    loss.backward()
    assert weights.grad is not None
    assert weights.grad.tolist() == [[0, -0.25, 0], [0, -0.75, 0]]


def test_the_loss_of_a_batch_is_the_mean_of_the_losses_of_its_examples() -> None:
    made, model = phase(), tiny_model().eval()
    rows = made.train[:6]
    whole = made.loss(model, made.prepare(model, rows))[0].item()
    alone = [made.loss(model, made.prepare(model, rows[place : place + 1]))[0].item() for place in range(6)]
    assert whole == pytest.approx(np.mean(alone), rel=1e-5)


def test_packed_and_padded_examples_have_the_same_loss() -> None:
    made, model = phase(), tiny_model().eval()
    with torch.no_grad():
        padded, packed = (made.loss(model, made.batch(made.train[:6], packed))[0].item() for packed in (False, True))
    assert packed == pytest.approx(padded, rel=1e-5)


def test_scores_are_the_weights_of_words_and_nan_elsewhere() -> None:
    made, model = phase(), tiny_model().eval()
    prepared = made.prepare(model, made.train[:4])
    scores = made.loss(model, prepared)[1]
    is_word = prepared.targets.flatten() >= 0
    assert torch.equal(~scores.isnan(), is_word)
    assert torch.equal(scores[is_word], model(prepared.inputs).flatten()[is_word])


def test_a_tenth_of_the_passages_is_held_out_by_the_seed_alone_with_all_windows() -> None:
    first, same, other = phase(), phase(), phase(seed=4)
    passages = made_up(200).passages

    assert len(set(passages[first.dev])) == 20
    assert not set(passages[first.dev]) & set(passages[first.train])
    assert sorted([*first.dev, *first.train]) == list(range(len(passages)))
    np.testing.assert_array_equal(first.dev, same.dev)
    assert set(first.dev) != set(other.dev)


def test_an_epoch_has_every_other_window_once_in_an_order_of_its_own() -> None:
    made = phase()
    epochs = [made.examples(epoch).tolist() for epoch in range(3)]
    for examples in epochs:
        assert sorted(examples) == made.train.tolist()
        assert len(examples) == made.num_examples()
    assert epochs[0] != epochs[1] != epochs[2]
    assert epochs[1] == phase().examples(1).tolist()


def test_the_dev_metric_is_minus_the_mean_squared_error_and_shares_add_up() -> None:
    made, model = phase(), tiny_model()
    with torch.no_grad():
        model.head.weight.zero_()
        model.head.bias.fill_(0.25)
    targets = np.concatenate([made_up(200).targets[slice(*bounds)] for bounds in _bounds(made.dev)])
    targets = targets[targets >= 0]

    total, count = made.evaluate(model)

    assert count == len(targets)
    assert total / count == pytest.approx(-np.square(0.25 - targets).mean(), rel=1e-5)
    shares = [made.evaluate(model, rank, 3) for rank in range(3)]
    assert sum(share[1] for share in shares) == count
    assert sum(share[0] for share in shares) == pytest.approx(total)
    assert model.training


def _bounds(rows: np.ndarray) -> list[tuple[int, int]]:
    windows = made_up(200).windows
    return list(zip(windows.starts[rows].tolist(), windows.stops[rows].tolist(), strict=True))


@pytest.mark.parametrize("device", [CPU, GPU])
def test_it_learns_which_word_matters(device: torch.device) -> None:
    made, model = phase(), tiny_model(dropout=0.1).to(device)
    fitted = fit(
        model, made, CONFIG, training=TrainingConfig(), device=device, checkpoint=Forgets(), log=lambda line: None
    )
    facts = made.facts()

    assert facts["num_train_passages"] == 180
    assert facts["num_dev_passages"] == 20
    assert 0 < facts["mean_target"] < 0.2
    assert fitted.state.best > facts["dev_of_mean"] / 4
    assert math.isfinite(fitted.state.spread)


def test_one_passage_is_not_enough() -> None:
    with pytest.raises(DatasetError, match="at least 2 passages that are relevant to training queries"):
        phase(passages=1)
