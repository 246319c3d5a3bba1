"""Where the query is in `[CLS] type [SEP] query [SEP]`."""

import numpy as np

from rayrank.text.ragged import Rows, Windows


def query_places(prefixes: Windows, sep_id: int, has_type: bool) -> tuple[Rows, Rows]:
    """Return for every piece after the type, special tokens included, the row of its prefix and its place in the
    prefixes' array."""
    lengths = prefixes.lengths()
    rows = np.repeat(np.arange(len(prefixes)), lengths)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(lengths) - lengths - prefixes.starts, lengths)
    if not has_type:
        return rows, places
    seps = np.cumsum(prefixes.values[places] == sep_id)
    before = np.concatenate([[0], seps])[np.cumsum(lengths) - lengths]
    kept = seps - before[rows] > 0
    return rows[kept], places[kept]
