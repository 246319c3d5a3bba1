"""Losses as pure functions of scores and labels."""

import torch
from torch import Tensor
from torch.nn import functional

from rayrank.models.pretraining import IGNORED


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


def pretraining(mlm_logits: Tensor, labels: Tensor, of_example: Tensor, nsp_logits: Tensor, is_next: Tensor) -> Tensor:
    """Cross entropy of the masked pieces plus that of the next sentences, of which class 0 is the true one.

    `mlm_logits` and `labels` hold the masked pieces of all examples, `of_example` whose each is. The pieces are
    averaged within their example first and the examples then, so that an example counts the same wherever it is
    computed: the loss of a batch is that of its parts, weighted by their numbers of examples.
    """
    num_examples = len(is_next)
    each = functional.cross_entropy(mlm_logits.float(), labels, reduction="none", ignore_index=IGNORED)
    counted = (labels != IGNORED).to(each.dtype)
    counts = torch.zeros(num_examples, device=each.device).index_add_(0, of_example, counted)
    # An example without a masked piece may be the one that others are filled up as.
    masked = (each / counts[of_example].clamp(min=1)).sum() / num_examples
    return masked + functional.cross_entropy(nsp_logits.float(), (~is_next).long())
