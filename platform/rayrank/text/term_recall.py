"""Query-term recall: what DeepCT learns of a passage's words, from the queries that the passage is relevant to."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rayrank.text.terms import Terms, terms_of


def query_term_recall(words: Sequence[str], queries: Sequence[str], terms: Terms = terms_of) -> NDArray[np.float32]:
    """Return for each word of a passage the share of the passage's queries that contain it.

    Words are compared as Lucene's terms, because a query word that BM25 matches is one that should have weight. A word
    of several terms counts as the most frequent one. Stop words of English are words like any other; those of other
    languages, which the index does not have, have no term.
    """
    counts = Counter(chain.from_iterable(terms(queries)))
    frequencies = [max((counts[term] for term in found), default=0) for found in terms(words)]
    return np.array(frequencies, np.float32) / np.float32(len(queries))
