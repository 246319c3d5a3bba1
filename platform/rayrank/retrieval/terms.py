"""The terms of texts and words in the index's language, for code that compares words as BM25 does."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context

from rayrank.core.config import IndexConfig
from rayrank.core.errors import ConfigError
from rayrank.core.languages import ENGLISH, UNSPACED
from rayrank.retrieval.lucene import analyzer_of, java
from rayrank.text import terms as english
from rayrank.text.terms import Terms


@contextmanager
def terms_in(config: IndexConfig) -> Iterator[Terms]:
    """Yield a function from texts to their terms; outside English it is Lucene's analyser, in a process of its own.

    A JVM would stay in this process and handle its signals.
    """
    if config.language == ENGLISH:
        yield english.terms_of
        return
    if config.language in UNSPACED:
        raise ConfigError(
            f"The words of index.language={config.language} cannot be weighed by DeepCT, because no spaces separate "
            f"them: choose another first stage with --set candidates.first_stage=..."
        )
    known: dict[str, frozenset[str]] = {}
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:

        def terms(texts: Sequence[str]) -> list[frozenset[str]]:
            if new := list({text for text in texts if text not in known}):
                known.update(zip(new, process.submit(lucene_terms, new, config).result(), strict=True))
            return [known[text] for text in texts]

        yield terms


def lucene_terms(texts: Sequence[str], config: IndexConfig) -> list[frozenset[str]]:
    """Return the distinct terms of each text; starts a JVM in this process."""
    analyzer, utilities = analyzer_of(config), java("io.anserini.analysis.AnalyzerUtils")
    return [frozenset(utilities.analyze(analyzer, text).toArray()) for text in texts]
