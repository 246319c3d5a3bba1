"""Losses as pure functions of scores and labels; formula numbers are those of the DR-BERT paper."""

import torch
from torch import Tensor
from torch.nn import functional

from rayrank.models.pretraining import IGNORED


def pointwise(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of two classes, irrelevant and relevant, one pair at a time (formula 5).

    Labels are 0 or 1, or as floats the probabilities of relevance.
    """
    if labels.is_floating_point():
        labels = torch.stack([1 - labels, labels], dim=1)
    return functional.cross_entropy(logits.float(), labels)


def pretraining(
    mlm_logits: Tensor, labels: Tensor, of_example: Tensor, nsp_logits: Tensor, nsp_labels: Tensor
) -> Tensor:
    """Cross entropy of the masked pieces plus that of next-sentence prediction, averaged over the examples.

    `mlm_logits` and `labels` have one row for each masked piece, `of_example` says to which example it belongs. The
    label `IGNORED`, for padding and for an example without a second sentence, adds nothing to the loss.
    Pieces are averaged within their example first, and both sums are divided by the number of examples: so the loss of
    a batch is the mean of the losses of its parts, weighted by their numbers of examples.
    """
    num_examples = len(nsp_labels)
    each = functional.cross_entropy(mlm_logits.float(), labels, reduction="none", ignore_index=IGNORED)
    counted = (labels != IGNORED).to(each.dtype)
    counts = torch.zeros(num_examples, device=each.device).index_add_(0, of_example, counted)
    # Padding is attributed to the first example, which may have no masked piece.
    masked = (each / counts[of_example].clamp(min=1)).sum()
    second = functional.cross_entropy(nsp_logits.float(), nsp_labels, reduction="sum", ignore_index=IGNORED)
    return (masked + second) / num_examples


def in_batch(scores: Tensor, excluded: Tensor) -> Tensor:
    """Cross entropy with in-batch negatives: each query's positive against all passages of the batch.

    `scores` and `excluded` are (queries, passages); passage i is the positive of query i. The softmax leaves excluded
    passages out.
    """
    scores = scores.masked_fill(excluded, -torch.inf)
    return functional.cross_entropy(scores, torch.arange(len(scores), device=scores.device))


def hinge(positives: Tensor, negatives: Tensor) -> Tensor:
    """Mean of how much each positive's score lacks to be 1 above that of a negative of the same query.

    `positives` is (queries, 1) and `negatives` is (queries, negatives).
    """
    return functional.relu(1 - positives + negatives).mean()


def query_types(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy over the types of queries."""
    return functional.cross_entropy(logits, labels)


def query_pieces(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross entropy of the pieces of queries, averaged within each query first, so that each query counts the same.

    `logits` are (queries, length, vocabulary); a label that is `IGNORED` adds nothing.
    """
    each = functional.cross_entropy(
        logits.float().flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED
    ).view_as(labels)
    return (each.sum(1) / (labels != IGNORED).sum(1)).mean()


def term_weights(weights: Tensor, targets: Tensor, num_words: float) -> Tensor:
    """Squared error of the words' weights, summed and divided by the expected number of words in the batch.

    Both tensors have one entry for each word piece; a target is negative where a piece begins no word. With the
    expected number instead of the batch's own, each word counts the same, whatever batch it is in.
    """
    errors = (weights.float() - targets).masked_fill(targets < 0, 0)
    return errors.square().sum() / num_words
