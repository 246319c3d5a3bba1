"""How far the words of a corpus are from general text's: the analysis behind the paper's 44.3 %."""

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

SHOWN = 20
"""The most typical words that a report names."""
UNUSUAL = 10.0
"""How many times more frequent than in general text a typical word is: it keeps "you" and "is" out."""

FAR = 0.2
"""Beyond chance: about half of what the paper took as its reason to pre-train. A rule of thumb."""


class Word(NamedTuple):
    """A frequent word of the corpus beside its place in general text."""

    word: str
    rank: int
    occurrences: int
    general_rank: int | None
    """None if the general list does not hold it."""
    ratio: float
    """Its frequency here over that in general text; a lower bound if the general list does not hold it."""
    divergence: float
    """What it adds to the divergence from general text, in bits a running word: frequent and unusual words add most."""


@dataclass(frozen=True)
class Comparison:
    """The most frequent words of a corpus against those of general text."""

    compared: int
    """Words of either side: those asked for, or all the corpus has."""
    num_differing: int
    """Words of the corpus's list that are not on the general one."""
    by_chance: float
    """The share that would differ if the corpus were words drawn from general text: rare words come and go."""
    covered: float
    """Share of the corpus's running words that are on the general list, numbers left out."""
    least_count: int
    """How often the last word of the corpus's list occurs; a small one says that the end of the list is chance."""
    words: list[Word]

    @property
    def share(self) -> float:
        return self.num_differing / self.compared

    def typical(self, count: int = SHOWN) -> list[Word]:
        """Return the words that set the corpus apart most: much more frequent than elsewhere, and frequent."""
        unusual = [word for word in self.words if word.ratio >= UNUSUAL]
        return sorted(unusual, key=lambda word: (-word.divergence, word.rank))[:count]


def check_language(language: str) -> None:
    """Refuse a language without a word list, or whose words only a dictionary can tell apart."""
    known = sorted(name for name in wordfreq.available_languages() if get_language_info(name)["tokenizer"] == "regex")
    if language not in known:
        raise ConfigError(
            f"domain.language={language} has no list of general words: choose one of {', '.join(known)} with "
            f"--set domain.language=..."
        )


def general_words(language: str) -> Frequencies:
    """Return the words of general text that hold no digit; numbers are estimated there, not counted."""
    listed = wordfreq.get_frequency_dict(language)
    return {word: listed[word] for word in wordfreq.iter_wordlist(language) if not _has_digit(word)}


def count_words(texts: list[str], language: str) -> tuple[pa.Table, int]:
    """Return how often each word without a digit occurs, cut and folded as the general list was, and all words."""
    tokens = pa.array(map(partial(tokenize, lang=language), texts), pa.list_(pa.large_string())).flatten()
    counts = tokens.value_counts()
    words = counts.field("values")
    kept = pc.invert(pc.match_substring_regex(words, r"\p{Nd}"))
    return pa.table({"word": words, "count": counts.field("counts")}).filter(kept), len(tokens)


def add_counts(tables: list[pa.Table]) -> pa.Table:
    """Return the counts of several tables together, none left out."""
    total = pa.concat_tables(tables).group_by("word").aggregate([("count", "sum")])
    return pa.table({"word": total["word"], "count": total["count_sum"]})


def compare(counts: pa.Table, num_running: int, general: Frequencies, size: int) -> Comparison:
    """Return how the `size` most frequent words of a corpus differ from the most frequent words of general text."""
    ordered = counts.sort_by([("count", "descending"), ("word", "ascending")])
    compared = min(size, len(ordered), len(general))
    ranks = {word: rank for rank, word in enumerate(general, start=1)}
    least = min(general.values())
    words = []
    top = ordered.slice(0, compared).to_pylist()
    for rank, row in enumerate(top, start=1):
        word, count = row["word"], row["count"]
        frequency = count / num_running
        # A word that the list does not hold is rarer than all it holds.
        ratio = frequency / general.get(word, least)
        words.append(Word(word, rank, count, ranks.get(word), ratio, frequency * math.log2(ratio)))
    on_list = set(list(general)[:compared])
    covered = pc.sum(ordered.filter(pc.is_in(ordered["word"], pa.array(on_list, pa.large_string())))["count"]).as_py()
    return Comparison(
        compared=compared,
        num_differing=sum(word.word not in on_list for word in words),
        by_chance=_share_by_chance(general, num_running, compared),
        covered=(covered or 0) / pc.sum(ordered["count"]).as_py(),
        least_count=words[-1].occurrences,
        words=words,
    )


def findings(result: Comparison, language: str) -> list[str]:
    """Return the comparison as lines for a person."""
    lines = [
        f"{result.share:.1%} of the corpus's {result.compared:,} most frequent words are not among the "
        f"{result.compared:,} of general text ({language}); words drawn from general text would differ by "
        f"{result.by_chance:.1%}, MS MARCO's did by 44.3 % in the DR-BERT paper",
        f"the words of the general list make up {result.covered:.1%} of the running text; the last word of the "
        f"corpus's list occurs {result.least_count:,} times",
        f"{'most typical of the corpus':<28}{'times':>10}{'rank':>8}{'in general':>12}{'ratio':>10}",
    ]
    for word in result.typical():
        general = "not listed" if word.general_rank is None else f"{word.general_rank:,}"
        ratio = f"{'>' if word.general_rank is None else ''}{word.ratio:,.1f}"
        lines.append(f"  {word.word:<26}{word.occurrences:>10,}{word.rank:>8,}{general:>12}{ratio:>10}")
    far = result.share - result.by_chance
    lines.append(
        f"{100 * far:.1f} points above chance {'can be' if far >= FAR else 'are hardly'} a reason to pre-train on the "
        f"corpus; whether it pays, only a run with pretrain.enabled=false beside it tells"
    )
    return lines


def _share_by_chance(general: Frequencies, num_running: int, compared: int) -> float:
    """Return the share of frequent words that differs in a draw of as many running words from the general list."""
    drawn = np.random.default_rng(0).poisson(num_running * np.array(list(general.values())))
    # Stable, so that of words drawn equally often those that are more frequent in general come first.
    top = np.argsort(-drawn, kind="stable")[:compared]
    return float((top >= compared).mean())


def _has_digit(word: str) -> bool:
    return any(sign.isdecimal() for sign in word)
