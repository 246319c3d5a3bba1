"""The losses of lists, on hand-worked cases and against definitions without tensors."""

import math

import pytest
import torch
from sentence_transformers.cross_encoder.losses.lambda_loss import NDCGLoss2PPScheme
from torch.nn import functional

from rayrank.core.config import ListwiseConfig
from rayrank.training.list_losses import LOSSES, MU

SCORES = [2.0, 0.5, 1.0, -1.0, 0.25]
GRADES = [0, 3, 1, 0, 1]


def loss(name: str, *lists: tuple[list[float], list[int]]) -> float:
    scores, labels = (torch.tensor(column) for column in zip(*lists, strict=True))
    return LOSSES[name](scores, labels).item()


def pairs(scores: list[float], grades: list[int]) -> list[tuple[int, int]]:
    return [(i, j) for i in range(len(scores)) for j in range(len(scores)) if grades[i] > grades[j]]


def softplus(value: float) -> float:
    return math.log1p(math.exp(value))


def ranknet(scores: list[float], grades: list[int]) -> float:
    found = [softplus(scores[j] - scores[i]) for i, j in pairs(scores, grades)]
    return sum(found) / len(found)


def lambda_loss(scores: list[float], grades: list[int]) -> float:
    """NDCG-Loss2++ as its paper writes it."""
    gains = [2**grade - 1 for grade in grades]
    ideal = sum(gain / math.log2(1 + place) for place, gain in enumerate(sorted(gains, reverse=True), 1))
    ranks = [1 + sum(other > score for other in scores) for score in scores]
    total = 0.0
    for i, j in pairs(scores, grades):
        near = abs(ranks[i] - ranks[j])
        of_distance = abs(1 / math.log2(1 + near) - 1 / math.log2(2 + near))
        of_ranks = abs(1 / math.log2(1 + ranks[i]) - 1 / math.log2(1 + ranks[j]))
        weight = (MU * of_distance + of_ranks) * abs(gains[i] - gains[j]) / ideal
        total += weight * softplus(scores[j] - scores[i])
    return total


def list_mle(scores: list[float], grades: list[int]) -> float:
    left, found = list(range(len(scores))), []
    for drawn in sorted([place for place in left if grades[place]], key=lambda place: -grades[place]):
        found.append(math.log(sum(math.exp(scores[place]) for place in left)) - scores[drawn])
        left.remove(drawn)
    return sum(found) / len(found)


def softmax(scores: list[float], grades: list[int]) -> float:
    whole = math.log(sum(map(math.exp, scores)))
    return sum(grade * (whole - score) for score, grade in zip(scores, grades, strict=True)) / sum(grades)


DEFINITIONS = {"softmax": softmax, "ranknet": ranknet, "lambda": lambda_loss, "listmle": list_mle}


def test_every_value_of_the_setting_has_a_loss() -> None:
    allowed = ListwiseConfig.model_json_schema()["properties"]["loss"]["enum"]
    assert list(LOSSES) == allowed == list(DEFINITIONS)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("grades", [GRADES, [0, 1, 0, 0, 0], [1, 0, 0, 0, 0], [2, 2, 1, 0, 0]])
def test_a_loss_is_what_its_definition_says(name: str, grades: list[int]) -> None:
    assert loss(name, (SCORES, grades)) == pytest.approx(DEFINITIONS[name](SCORES, grades), rel=1e-5)


def test_the_lambda_loss_weighs_pairs_as_sentence_transformers_does() -> None:
    scores, grades = torch.tensor(SCORES), torch.tensor(GRADES)
    order = scores.argsort(descending=True)
    discounts = torch.log2(1.0 + torch.arange(1, len(scores) + 1))
    gains = torch.exp2(grades) - 1
    gains = (gains / (gains.sort(descending=True).values / discounts).sum())[order]

    weights = NDCGLoss2PPScheme(MU)(gains[None], discounts[None], gains[None])[0]

    wanted = weights * softplus_of(scores[order]) * (grades[order][:, None] > grades[order])
    assert loss("lambda", (SCORES, GRADES)) == pytest.approx(wanted.sum().item(), rel=1e-5)


def softplus_of(scores: torch.Tensor) -> torch.Tensor:
    return functional.softplus(scores[None] - scores[:, None])


@pytest.mark.parametrize("name", LOSSES)
def test_lists_are_averaged_and_padding_never_counts(name: str) -> None:
    whole = loss(name, (SCORES, GRADES), ([1.0, 0.5, 9.0, -9.0, 3.0], [1, 0, -1, -1, -1]))

    assert whole == pytest.approx((loss(name, (SCORES, GRADES)) + loss(name, ([1.0, 0.5], [1, 0]))) / 2, rel=1e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_against_the_gradient_lowers_the_loss(name: str) -> None:
    scores = torch.tensor([SCORES], requires_grad=True)
    before = LOSSES[name](scores, torch.tensor([GRADES]))
    before.backward()

    after = LOSSES[name](scores - 0.05 * scores.grad, torch.tensor([GRADES]))

    assert torch.isfinite(scores.grad).all()
    assert after < before


@pytest.mark.parametrize("name", LOSSES)
def test_padding_has_no_gradient(name: str) -> None:
    scores = torch.tensor([[1.0, 0.5, 2.0]], requires_grad=True)

    LOSSES[name](scores, torch.tensor([[1, 0, -1]])).backward()

    assert scores.grad[0, 2] == 0
    assert torch.isfinite(scores.grad).all()
