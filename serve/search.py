"""The first stage of POST /search: BM25 over an index artifact, and the texts of the hits."""

import tempfile

import pyarrow as pa

from rayrank.core.artifacts import Artifact
from rayrank.core.config import IndexConfig
from rayrank.core.errors import ConfigError
from rayrank.data.ids import Lookup
from rayrank.retrieval.lucene import Bm25, Searcher
from serve.config import SearchConfig
from serve.records import Hit


def open_index(url: str) -> tuple[Artifact, Artifact]:
    """Return an index artifact and the corpus artifact it was built from."""
    root, stage, key = ["", *url.rstrip("/").rsplit("/", 2)][-3:]
    index = Artifact(root, stage, key)
    if stage != "index" or not index.exists():
        raise ConfigError(
            f"search.index={url} is no index artifact: name a folder STORAGE/index/KEY written by jobs.build_index."
        )
    return index, Artifact(root, "corpus", index.manifest["inputs"]["corpus"])


class IndexSearch:
    """Searches the index for a query, in a JVM within this process."""

    def __init__(self, config: SearchConfig) -> None:
        index, corpus = open_index(config.index)
        manifest = index.manifest
        settings = IndexConfig.model_validate(manifest["config"]["index"])
        ranking = Bm25(config.k1, config.b, config.depth)
        self._search = Searcher(index.local(manifest["lucene"]), settings, ranking)
        self._texts = PassageTexts(corpus)

    def __call__(self, query: str, depth: int) -> list[Hit]:
        """Return hits, best first."""
        found = self._search(["query"], [query], threads=1).slice(0, depth)
        texts = self._texts(found["passage_id"])
        rows = zip(found["passage_id"].to_pylist(), texts, found["score"].to_pylist(), strict=True)
        return [Hit(*row) for row in rows]


class PassageTexts:
    """Passage texts by id, in a memory-mapped file: a large corpus does not fit into the memory of every replica."""

    def __init__(self, corpus: Artifact) -> None:
        ids = []
        # A mapped file stays readable after it is deleted, and its space is freed when the process ends in any way.
        with tempfile.NamedTemporaryFile() as file:
            with pa.ipc.new_file(file, pa.schema([("text", pa.large_string())])) as writer:
                for shard in corpus.manifest["shards"]:
                    for batch in corpus.batches(shard, ["passage_id", "text"]):
                        ids.append(batch.column(0))
                        writer.write_batch(pa.record_batch([batch.column(1).cast(pa.large_string())], ["text"]))
            file.flush()
            self._texts = pa.ipc.open_file(pa.memory_map(file.name)).read_all()["text"]
        self._row_of = Lookup(pa.chunked_array(ids, pa.string()))

    def __call__(self, passage_ids: pa.ChunkedArray) -> list[str]:
        """Return the text of each passage."""
        return [self._texts[int(row)].as_py() for row in self._row_of(passage_ids)]
