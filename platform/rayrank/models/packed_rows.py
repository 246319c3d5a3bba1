"""The sizes of packed rows: inputs lie end to end, and the padding after them is split into sequences of its own."""

from typing import NamedTuple

import numpy as np

from rayrank.text.ragged import Rows


class RowShape(NamedTuple):
    """The shape of a packed row in training. Batches have few different shapes, so that CUDA graphs can be replayed."""

    size: int
    """Positions of the row: the inputs and the padding after them."""
    num_offsets: int
    max_input_length: int

    @classmethod
    def of(cls, lengths: Rows, max_length: int) -> "RowShape":
        """Return the smallest shape that holds inputs of these lengths.

        At most 1/32 of a row is padding, or in a short row fewer than 256 positions.
        """
        total = int(lengths.sum())
        step = max(256, (1 << total.bit_length()) >> 6)
        max_input_length = min(max_length, -(-int(lengths.max(initial=1)) // 64) * 64)
        return cls(-(-total // step) * step, len(lengths) + -(-step // max_length) + 1, max_input_length)


def row_offsets(lengths: Rows, size: int, max_length: int, min_offsets: int = 0) -> Rows:
    """Return the offsets of a packed row's inputs and padding, then its size, repeated to fill `min_offsets`."""
    # Padding is split at the maximum length of inputs: attention over one long sequence would cost its length squared.
    padding = np.arange(lengths.sum(), size, max_length)
    ends = [size] * max(1, min_offsets - len(lengths) - len(padding))
    return np.concatenate([[0], np.cumsum(lengths)[:-1], padding, ends])
