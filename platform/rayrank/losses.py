"""Losses as pure functions of scores and labels."""

import torch
from torch import Tensor
from torch.nn import functional


def pointwise(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of two classes, irrelevant and relevant, one pair at a time (formula 5)."""
    return functional.cross_entropy(logits.float(), labels)


def listwise(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean negative log likelihood of the positives, normalised over their list (formulas 8 and 9).

    `scores` and `labels` are (lists, length); a label is 1 for a positive, 0 for a negative and -1 for padding.
    Each list counts the same, however many positives it has.
    """
    scores = scores.float().masked_fill(labels < 0, -torch.inf)
    negative_log = torch.logsumexp(scores, dim=1, keepdim=True) - scores
    positive = labels == 1
    each = negative_log.masked_fill(~positive, 0).sum(1) / positive.sum(1)
    return each.mean()
