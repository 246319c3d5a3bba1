"""The domain report: how far a corpus's most frequent words are from those of a reference text.

DR-BERT's authors compare MS MARCO with BERT's pre-training corpora this way and find 44.3 % of 10,000 words different.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import wordfreq
from wordfreq.language_info import get_language_info
from wordfreq.tokens import tokenize

from rayrank.core.errors import ConfigError

Frequencies = dict[str, float]
"""Words and their share of all running words, the most frequent first."""

MAX_REFERENCE_WORDS = 1_000_000
"""Words kept of a reference text; wordfreq's own lists have a third as many."""

TYPICAL_SHOWN = 20
"""Typical words that a report names."""
TYPICAL_RATIO = 10.0
"""A typical word is at least this many times as frequent as in the reference, which excludes "you" and "is"."""

FAR = 0.2
"""Share of differing words beyond chance, about half of the paper's figure, from which pre-training may pay."""


class Word(NamedTuple):
    """A frequent word of the corpus, compared with the reference."""

    word: str
    rank: int
    occurrences: int
    reference_rank: int | None
    """None if the reference does not have the word."""
    ratio: float
    """Its frequency over that in the reference; a lower bound if the reference does not have the word."""
    divergence: float
    """Its term of the Kullback-Leibler divergence from the reference, in bits per running word."""


@dataclass(frozen=True)
class Comparison:
    """The most frequent words of a corpus against those of a reference."""

    compared: int
    """Words on each side: as many as asked for, or all that the smaller side has."""
    num_differing: int
    """Words of the corpus's list that are not on the reference's."""
    by_chance: float
    """The share that would differ if the corpus were drawn from the reference's words: rare words vary by chance."""
    covered: float
    """Share of the corpus's running words, without numbers, that are on the reference's list."""
    min_count: int
    """Occurrences of the last word of the corpus's list; if few, the end of the list is chance."""
    words: list[Word]

    @property
    def share(self) -> float:
        return self.num_differing / self.compared

    def typical(self, count: int = TYPICAL_SHOWN) -> list[Word]:
        """Return the words that distinguish the corpus most: much more frequent than in the reference, and frequent."""
        unusual = [word for word in self.words if word.ratio >= TYPICAL_RATIO]
        return sorted(unusual, key=lambda word: (-word.divergence, word.rank))[:count]


def check_language(language: str) -> None:
    """Refuse a language without a word list, or one that needs a dictionary to be split into words."""
    known = sorted(name for name in wordfreq.available_languages() if get_language_info(name)["tokenizer"] == "regex")
    if language not in known:
        raise ConfigError(
            f"domain.language={language} has no list of general words: choose one of {', '.join(known)} with "
            f"--set domain.language=..."
        )


def general_words(language: str) -> Frequencies:
    """Return wordfreq's words of general text that have no digit; its frequencies of numbers are only estimates."""
    listed = wordfreq.get_frequency_dict(language)
    return {word: listed[word] for word in wordfreq.iter_wordlist(language) if not _has_digit(word)}


def reference_words(counts: pa.Table, num_running: int) -> Frequencies:
    """Return the words of a reference text, from its counts."""
    ordered = _most_frequent(counts, MAX_REFERENCE_WORDS)
    shares = ordered["count"].to_numpy() / num_running
    return dict(zip(ordered["word"].to_pylist(), shares.tolist(), strict=True))


def count_words(texts: list[str], language: str) -> tuple[pa.Table, int]:
    """Return the counts of all words without a digit, tokenised as wordfreq's list was, and the number of all words."""
    tokens = pa.array(map(partial(tokenize, lang=language), texts), pa.list_(pa.large_string())).flatten()
    counts = tokens.value_counts()
    words = counts.field("values")
    kept = pc.invert(pc.match_substring_regex(words, r"\p{Nd}"))
    return pa.table({"word": words, "count": counts.field("counts")}).filter(kept), len(tokens)


def add_counts(tables: list[pa.Table]) -> pa.Table:
    """Return the sum of several tables of counts."""
    total = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    return pa.table({"word": total["word"], "count": total["count_sum"]})


def compare(counts: pa.Table, num_running: int, reference: Frequencies, size: int) -> Comparison:
    """Compare the `size` most frequent words of a corpus with those of a reference."""
    compared = min(size, len(counts), len(reference))
    ranks = {word: rank for rank, word in enumerate(reference, start=1)}
    rarest = min(reference.values())
    words = []
    for rank, row in enumerate(_most_frequent(counts, compared).to_pylist(), start=1):
        word, count = row["word"], row["count"]
        frequency = count / num_running
        # A word that the reference does not have is at most as frequent as its rarest one.
        ratio = frequency / reference.get(word, rarest)
        words.append(Word(word, rank, count, ranks.get(word), ratio, frequency * math.log2(ratio)))
    on_list = set(list(reference)[:compared])
    listed = pc.is_in(counts["word"], pa.array(on_list, pa.large_string()))
    return Comparison(
        compared=compared,
        num_differing=sum(word.word not in on_list for word in words),
        by_chance=_share_by_chance(reference, num_running, compared),
        covered=(pc.sum(counts.filter(listed)["count"]).as_py() or 0) / pc.sum(counts["count"]).as_py(),
        min_count=words[-1].occurrences,
        words=words,
    )


def findings(result: Comparison, reference: str) -> list[str]:
    """Return the comparison as lines of text; `reference` names what the corpus was compared with."""
    lines = [
        f"{result.share:.1%} of the corpus's {result.compared:,} most frequent words are not among the "
        f"{result.compared:,} of {reference}; for a sample of {reference} of the same size it would be "
        f"{result.by_chance:.1%}; the DR-BERT paper finds 44.3 % for MS MARCO against BERT's pre-training corpora",
        f"the words of the reference's list make up {result.covered:.1%} of the running text; the last word of the "
        f"corpus's list occurs {result.min_count:,} times",
        f"{'most typical of the corpus':<28}{'times':>10}{'rank':>8}{'reference':>12}{'ratio':>10}",
    ]
    for word in result.typical():
        rank = "not listed" if word.reference_rank is None else f"{word.reference_rank:,}"
        ratio = f"{'>' if word.reference_rank is None else ''}{word.ratio:,.1f}"
        lines.append(f"  {word.word:<26}{word.occurrences:>10,}{word.rank:>8,}{rank:>12}{ratio:>10}")
    far = result.share - result.by_chance
    lines.append(
        f"{100 * far:.1f} points above chance {'can be' if far >= FAR else 'are hardly'} a reason to pre-train on the "
        f"corpus; only a comparison with pretrain.enabled=false shows whether it pays"
    )
    return lines


def _most_frequent(counts: pa.Table, size: int) -> pa.Table:
    """Return the most frequent words, in order; ties by their letters."""
    return counts.sort_by([("count", "descending"), ("word", "ascending")]).slice(0, size)


def _share_by_chance(reference: Frequencies, num_running: int, compared: int) -> float:
    """Return the share of the list that differs when as many running words are drawn from the reference."""
    drawn = np.random.default_rng(0).poisson(num_running * np.array(list(reference.values())))
    # A stable sort puts the word that is more frequent in the reference first among ties.
    top = np.argsort(-drawn, kind="stable")[:compared]
    return float((top >= compared).mean())


def _has_digit(word: str) -> bool:
    return any(character.isdecimal() for character in word)
