"""Segmented token recovery (formula 12 of DR-BERT): words, not their pieces, attend to each other.

Position a may attend to position b if b stands for its word, or if both are pieces of the same word. In the
paper's form the last piece stands for a word; when a text is cut inside one, the last piece that is left does.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rayrank.text.words import ALONE, STARTS

Representative = Literal["last", "first", "all"]
"""The pieces that stand for their word."""


def word_starts(ids: Tensor, table: Tensor) -> Tensor:
    """Return where a word begins, along the last dimension; what follows a lone piece begins one too."""
    role = table[ids]
    # Nothing is written in place here or below: that has no name in an ONNX graph.
    return (role >= STARTS) | pad(role[..., :-1] == ALONE, (1, 0), value=True)


def standing(starts: Tensor, representative: Representative) -> Tensor:
    """Return which pieces stand for their word, along the last dimension."""
    if representative == "first":
        return starts
    if representative == "all":
        return torch.ones_like(starts)
    return pad(starts[..., 1:], (0, 1), value=True)


def padded_mask(ids: Tensor, attention_mask: Tensor, table: Tensor, representative: Representative = "last") -> Tensor:
    """Return the boolean (batch, 1, length, length) mask of a padded batch; True may attend."""
    present = attention_mask.bool()
    # Padding begins a word of its own, so that the last piece before it is its word's last.
    starts = word_starts(ids, table) | ~present
    word = starts.long().cumsum(-1)
    allowed = standing(starts, representative)[:, None, :] | (word[:, :, None] == word[:, None, :])
    return (allowed & present[:, None, :])[:, None]


class PackedCodes(NamedTuple):
    """Who attends to whom in a packed batch: q to k if word[q] == word[k] or open_to[k] == seq[q].

    A layer that attends plainly asks only seq[q] == seq[k]. A learned bias goes where the two rules differ:
    where seq[q] == seq[k] but neither word[q] == word[k] nor open_to[k] == seq[q]. Which piece stands for its
    word changes what `open_to` holds, not how often it is read, so no form costs a look-up more.
    """

    seq: Tensor
    word: Tensor
    open_to: Tensor


def packed_codes(ids: Tensor, seq: Tensor, table: Tensor, representative: Representative = "last") -> PackedCodes:
    """Return int32 codes for one long row of sequences, `seq` numbering them from 0; -1 is padding."""
    starts = word_starts(ids, table)
    starts[1:] |= seq[1:] != seq[:-1]
    # int32: attention compares them for every pair of positions.
    word = starts.cumsum(0, dtype=torch.int32)
    seq = seq.to(torch.int32)
    return PackedCodes(seq, word, torch.where(standing(starts, representative) & (seq >= 0), seq, -2))
