"""Losses of lists: a query's passages compete with each other.

`scores` and `labels` are (lists, length). A label is the grade of a positive, 0 for a negative and -1 for padding. Each
list counts the same, however many positives it has.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

MU = 10.0
"""How much the distance of two ranks counts beside the ranks themselves, as in the paper of LambdaLoss."""


def softmax(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log likelihood of the positives, each against its whole list (DR-BERT's formulas 8 and 9)."""
    scores = scores.float().masked_fill(labels < 0, -torch.inf)
    negative_log = torch.logsumexp(scores, dim=1, keepdim=True) - scores
    gains = labels.clamp(min=0)
    each = (negative_log.masked_fill(gains == 0, 0) * gains).sum(1) / gains.sum(1)
    return each.mean()


def ranknet(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log probability that the better of two passages has the higher score, over the pairs of a list."""
    pairs = better(labels).float()
    each = functional.softplus(-differences(scores)) * pairs
    return (each.sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)).mean()


def lambda_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """RankNet's pairs weighted by what exchanging their ranks would do to nDCG: LambdaLoss' NDCG-Loss2++."""
    gains = torch.exp2(labels.clamp(min=0).float()) - 1
    ideal = gains.sort(dim=1, descending=True).values
    places = torch.arange(1, scores.shape[1] + 1, device=scores.device)
    gains = gains / (ideal / torch.log2(1 + places)).sum(1, keepdim=True).clamp(min=1)
    # Padding comes last; of equal scores the first has the better rank.
    order = scores.detach().float().masked_fill(labels < 0, -torch.inf).argsort(dim=1, descending=True, stable=True)
    ranks = order.argsort(dim=1) + 1
    distance = (ranks[:, :, None] - ranks[:, None]).abs().clamp(min=1)
    of_distance = 1 / torch.log2(1.0 + distance) - 1 / torch.log2(2.0 + distance)
    discounts = 1 / torch.log2(1.0 + ranks)
    of_ranks = (discounts[:, :, None] - discounts[:, None]).abs()
    weights = (MU * of_distance + of_ranks) * (gains[:, :, None] - gains[:, None]).abs() * better(labels)
    return (weights * functional.softplus(-differences(scores))).sum((1, 2)).mean()


def list_mle(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log likelihood of the positives in the order of their grades, each drawn from what is left.

    Negatives have no order among themselves, so they are never drawn. With one positive this is the softmax.
    """
    order = labels.argsort(dim=1, descending=True, stable=True)
    scores, labels = scores.float().gather(1, order), labels.gather(1, order)
    scores = scores.masked_fill(labels < 0, -torch.inf)
    left = scores.flip(1).logcumsumexp(1).flip(1)
    each = (left - scores).masked_fill(labels <= 0, 0)
    return (each.sum(1) / (labels > 0).sum(1)).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "softmax": softmax,
    "ranknet": ranknet,
    "lambda": lambda_loss,
    "listmle": list_mle,
}
"""The values of `listwise.loss`."""


def differences(scores: Tensor) -> Tensor:
    """Return (lists, length, length): by how much the first passage's score is above the second's."""
    return scores.float()[:, :, None] - scores.float()[:, None]


def better(labels: Tensor) -> Tensor:
    """Return (lists, length, length): whether the first passage has the higher grade; False for padding."""
    return (labels[:, :, None] > labels[:, None]) & (labels[:, None] >= 0)
