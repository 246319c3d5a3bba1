"""The losses of DR-BERT's formulas 5, 8 and 9."""

import math

import pytest
import torch
from torch.nn import functional

from rayrank.training.list_losses import softmax as listwise
from rayrank.training.losses import hinge, pointwise


def naive_listwise(scores: list[list[float]], labels: list[list[int]]) -> float:
    """Formulas 8 and 9, list by list."""
    total = 0.0
    for row, marks in zip(scores, labels, strict=True):
        kept = [(score, mark) for score, mark in zip(row, marks, strict=True) if mark >= 0]
        normal = sum(math.exp(score) for score, _ in kept)
        positives = [score for score, mark in kept if mark == 1]
        total += sum(-math.log(math.exp(score) / normal) for score in positives) / len(positives)
    return total / len(scores)


def random_lists(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = 3 * torch.randn(4, 7, generator=generator)
    labels = torch.randint(-1, 2, (4, 7), generator=generator)
    labels[:, 0] = 1
    return scores, labels


@pytest.mark.parametrize("seed", range(10))
def test_the_listwise_loss_equals_formula_9_read_naively(seed: int) -> None:
    scores, labels = random_lists(seed)

    assert listwise(scores, labels).item() == pytest.approx(naive_listwise(scores.tolist(), labels.tolist()), abs=1e-5)


def test_positives_of_a_list_count_by_their_grades() -> None:
    scores, graded = torch.tensor([[0.5, 1.0, -1.0, 0.0]]), torch.tensor([[3, 1, 0, -1]])
    first, second = (listwise(scores, torch.tensor([labels])) for labels in ([1, 0, 0, -1], [0, 1, 0, -1]))

    assert torch.allclose(listwise(scores, graded), 0.75 * first + 0.25 * second, atol=1e-6)


def test_one_positive_against_one_negative_is_the_pairwise_logistic_loss() -> None:
    scores, labels = torch.randn(50, 2), torch.tensor([[1, 0]] * 50)

    expected = functional.softplus(scores[:, 1] - scores[:, 0]).mean()

    assert torch.allclose(listwise(scores, labels), expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_within_a_list_does_not_matter(seed: int) -> None:
    scores, labels = random_lists(seed)
    order = torch.randperm(scores.shape[1], generator=torch.Generator().manual_seed(seed))

    assert torch.allclose(listwise(scores, labels), listwise(scores[:, order], labels[:, order]), atol=1e-6)


def test_adding_a_constant_to_a_lists_scores_changes_nothing() -> None:
    scores, labels = random_lists(3)

    assert torch.allclose(
        listwise(scores, labels), listwise(scores + torch.tensor([[5.0], [-3], [80], [0]]), labels), atol=1e-4
    )


def test_padding_gets_no_gradient_and_the_rest_stays_finite() -> None:
    scores, labels = random_lists(4)
    scores.requires_grad_()

    listwise(scores, labels).backward()

    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad[labels < 0] == 0).all()
    assert (scores.grad[labels == 0] > 0).all()


def test_extreme_scores_in_half_precision_stay_finite() -> None:
    scores = torch.tensor([[60000.0, -60000.0]], dtype=torch.float16)

    assert listwise(scores, torch.tensor([[0, 1]])).item() == pytest.approx(119_999, rel=1e-2)


def test_the_hinge_loss_is_what_a_positive_lacks_to_be_one_above_its_negatives() -> None:
    positives, negatives = torch.tensor([[2.0], [0.5]]), torch.tensor([[0.5, 1.5], [1.0, -1.0]])

    # Query 1: 2 - 0.5 is more than 1, 2 - 1.5 lacks 0.5. Query 2: 0.5 - 1 lacks 1.5, 0.5 + 1 is more than 1.
    assert hinge(positives, negatives).item() == pytest.approx((0 + 0.5 + 1.5 + 0) / 4)


def test_the_pointwise_loss_is_the_negative_log_probability_of_the_right_class() -> None:
    logits = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]])

    assert pointwise(logits, torch.tensor([1, 0])).item() == pytest.approx((-math.log(3 / 4) - math.log(1 / 2)) / 2)
