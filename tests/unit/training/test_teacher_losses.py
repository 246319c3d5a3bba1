"""The losses of a teacher's scores, against definitions without tensors."""

import math

import pytest
import torch

from rayrank.core.config import ListwiseConfig
from rayrank.training.teacher_losses import TEACHER_LOSSES

NAN = math.nan
SCORES = [2.0, 0.5, 1.0, -1.0, 0.25]
GRADES = [0, 3, 1, 0, 1]
TAUGHT = [-3.0, 4.0, 1.5, NAN, 0.0]

List = tuple[list[float], list[int], list[float]]


def loss(name: str, *lists: List) -> float:
    scores, labels, taught = (torch.tensor(column) for column in zip(*lists, strict=True))
    return TEACHER_LOSSES[name](scores, labels, taught).item()


def kept(scores: list[float], grades: list[int], taught: list[float]) -> list[tuple[float, int, float]]:
    rows = zip(scores, grades, taught, strict=True)
    return [row for row in rows if row[1] >= 0 and not math.isnan(row[2])]


def softmax(values: list[float]) -> list[float]:
    total = sum(map(math.exp, values))
    return [math.exp(value) / total for value in values]


def kl(*columns: list[float]) -> float:
    rows = kept(*columns)  # type: ignore[arg-type]
    own, target = softmax([row[0] for row in rows]), softmax([row[2] for row in rows])
    return sum(p * math.log(p / q) for p, q in zip(target, own, strict=True))


def margin_mse(*columns: list[float]) -> float:
    rows = kept(*columns)  # type: ignore[arg-type]
    errors = [((a[0] - b[0]) - (a[2] - b[2])) ** 2 for a in rows for b in rows if a[1] > b[1]]
    return sum(errors) / len(errors)


DEFINITIONS = {"kl": kl, "margin_mse": margin_mse}


def test_every_value_of_the_setting_has_a_loss() -> None:
    allowed = ListwiseConfig.model_json_schema()["properties"]["teacher_loss"]["enum"]
    assert list(TEACHER_LOSSES) == allowed == list(DEFINITIONS)


@pytest.mark.parametrize("name", TEACHER_LOSSES)
@pytest.mark.parametrize("grades", [GRADES, [0, 1, 0, 0, 0], [2, 1, 0, 0, -1]])
@pytest.mark.parametrize("taught", [TAUGHT, [1.0, 2.0, 3.0, 4.0, 5.0]])
def test_a_loss_is_what_its_definition_says(name: str, grades: list[int], taught: list[float]) -> None:
    assert loss(name, (SCORES, grades, taught)) == pytest.approx(DEFINITIONS[name](SCORES, grades, taught), rel=1e-5)


@pytest.mark.parametrize("name", TEACHER_LOSSES)
def test_a_list_that_the_teacher_has_not_scored_adds_nothing_to_the_mean(name: str) -> None:
    unknown = ([1.0, 0.5, 9.0, -9.0, 3.0], [1, 0, 0, -1, -1], [NAN] * 5)
    alone = ([1.0, 0.5, 9.0, -9.0, 3.0], [1, 0, 0, -1, -1], [2.0, NAN, NAN, 1.0, 1.0])
    whole = loss(name, (SCORES, GRADES, TAUGHT), unknown, alone)

    assert whole == pytest.approx(loss(name, (SCORES, GRADES, TAUGHT)) / 3, rel=1e-5)


@pytest.mark.parametrize("name", TEACHER_LOSSES)
def test_the_teachers_own_scores_are_the_minimum_whatever_is_added_to_all(name: str) -> None:
    taught = [-3.0, 4.0, 1.5, 2.0, 0.0]
    assert loss(name, ([score + 7 for score in taught], GRADES, taught)) == pytest.approx(0, abs=1e-6)
    assert loss(name, (SCORES, GRADES, taught)) > 0.1


@pytest.mark.parametrize("name", TEACHER_LOSSES)
def test_gradients_are_finite_and_unscored_passages_have_none(name: str) -> None:
    scores = torch.tensor([SCORES, SCORES], requires_grad=True)
    labels, taught = torch.tensor([GRADES, GRADES]), torch.tensor([TAUGHT, [NAN] * 5])
    before = TEACHER_LOSSES[name](scores, labels, taught)
    before.backward()

    assert torch.isfinite(scores.grad).all()
    assert scores.grad[0, 3] == 0
    assert (scores.grad[1] == 0).all()
    assert TEACHER_LOSSES[name](scores - 0.05 * scores.grad, labels, taught) < before
