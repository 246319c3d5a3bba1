"""Query-term recall: what DeepCT learns of a passage's words, from the queries that the passage is relevant to."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rayrank.text.terms import term, terms_of


def query_term_recall(words: Sequence[str], queries: Sequence[str]) -> NDArray[np.float32]:
    """Return for each word of a passage the share of the passage's queries that contain it.

    Words are compared as Lucene's terms, because a query word that BM25 matches is one that should have weight. Stop
    words are words like any other.
    """
    counts = Counter(chain.from_iterable(terms_of(queries)))
    return np.array([counts[term(word)] / len(queries) for word in words], np.float32)
