"""Segmented token recovery, STRM (formula 12 of DR-BERT): words, not word pieces, attend to each other.

Position a may attend to position b if b is the representative piece of its word, or if a and b are pieces of the same
word. In the paper a word's last piece is its representative; in a word cut by truncation, the last piece that remains.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from rayrank.text.words import ALONE, STARTS

Representative = Literal["last", "first", "all"]
"""Which pieces of a word the positions of other words may attend to."""

NO_SEQUENCE = -2
"""`PackedCodes.visible_to` of a piece that only its own word may attend to; -1 is the sequence of padding."""


def word_starts(ids: Tensor, table: Tensor) -> Tensor:
    """Return which pieces start a word, along the last dimension; the piece after an ALONE piece does too."""
    role = table[ids]
    # In-place writes cannot be exported to ONNX, so there are none here and in `padded_mask`.
    return (role >= STARTS) | pad(role[..., :-1] == ALONE, (1, 0), value=True)


def representative_pieces(starts: Tensor, representative: Representative) -> Tensor:
    """Return which pieces represent their word, along the last dimension."""
    if representative == "first":
        return starts
    if representative == "all":
        return torch.ones_like(starts)
    return pad(starts[..., 1:], (0, 1), value=True)


def padded_mask(ids: Tensor, attention_mask: Tensor, table: Tensor, representative: Representative = "last") -> Tensor:
    """Return the boolean (batch, 1, length, length) mask of a padded batch; True where the row may attend."""
    present = attention_mask.bool()
    # Padding counts as a word start, which makes the piece before it the last of its word.
    starts = word_starts(ids, table) | ~present
    word = starts.long().cumsum(-1)
    allowed = representative_pieces(starts, representative)[:, None, :] | (word[:, :, None] == word[:, None, :])
    return (allowed & present[:, None, :])[:, None]


class PackedCodes(NamedTuple):
    """Three numbers per position of a packed batch from which attention derives its mask.

    In layers with STRM, query q may attend to key k if word[q] == word[k] or seq[q] == visible_to[k]; in the others, if
    seq[q] == seq[k]. STRM's learned bias is added to the logits of pairs in the same sequence that STRM would hide.
    """

    seq: Tensor
    """The number of the position's sequence."""
    word: Tensor
    """The number of the position's word, counted through the whole row."""
    visible_to: Tensor
    """For a representative piece the number of its sequence, for the others NO_SEQUENCE."""


def packed_codes(ids: Tensor, seq: Tensor, table: Tensor, representative: Representative = "last") -> PackedCodes:
    """Return the int32 codes of a packed row; `seq` numbers its sequences from 0, and -1 is padding."""
    starts = word_starts(ids, table)
    starts[1:] |= seq[1:] != seq[:-1]
    # int32 halves what the kernel reads: it loads the codes of every block of keys.
    word = starts.cumsum(0, dtype=torch.int32)
    seq = seq.to(torch.int32)
    is_visible = representative_pieces(starts, representative) & (seq >= 0)
    return PackedCodes(seq, word, torch.where(is_visible, seq, NO_SEQUENCE))
