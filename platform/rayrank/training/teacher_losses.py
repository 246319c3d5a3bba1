"""Losses of lists that a teacher has scored: the student learns its scores of a query's passages.

`scores`, `labels` and `taught` are (lists, length). A label is as in `list_losses`; `taught` has the teacher's scores,
NaN for a passage that it has not scored. Such a passage and padding are left out of a list. A list with fewer than two
passages left, or without a pair to compare, adds 0. Each list counts the same.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rayrank.training.list_losses import better, differences


def kl(scores: Tensor, labels: Tensor, taught: Tensor) -> Tensor:
    """Mean divergence of the student's softmax over each list from the teacher's."""
    known = _known(labels, taught)
    # Not -inf, because the softmax of a list without any known score would be NaN.
    lowest = torch.finfo(torch.float32).min
    target = taught.masked_fill(~known, lowest).log_softmax(1)
    own = scores.float().masked_fill(~known, lowest).log_softmax(1)
    return (target.exp() * (target - own)).masked_fill(~known, 0).sum(1).mean()


def margin_mse(scores: Tensor, labels: Tensor, taught: Tensor) -> Tensor:
    """Mean squared error of the margins: by how much each passage scores above one of a lower grade."""
    known = _known(labels, taught)
    taught = taught.masked_fill(~known, 0)
    pairs = better(labels) & known[:, :, None] & known[:, None]
    errors = (differences(scores) - differences(taught)).square() * pairs
    return (errors.sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1)).mean()


TEACHER_LOSSES: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {"kl": kl, "margin_mse": margin_mse}
"""The values of `listwise.teacher_loss`."""


def _known(labels: Tensor, taught: Tensor) -> Tensor:
    return ~taught.isnan() & (labels >= 0)
