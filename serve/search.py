"""POST /search: the first stage that the model was trained on, and the texts of what it finds."""

import pyarrow as pa

from rayrank.core.artifacts import Artifact
from rayrank.core.copies import temporary_folder
from rayrank.data.ids import Lookup
from rayrank.serve.config import SearchConfig
from rayrank.serve.first_stages import corpus_of, first_stage, open_run
from rayrank.serve.records import Hit


class RunSearch:
    """Searches as a run on storage did, within this process."""

    def __init__(self, config: SearchConfig) -> None:
        run = open_run(config.run)
        self._find = first_stage(run)
        self._texts = PassageTexts(corpus_of(run))

    def __call__(self, query: str, depth: int) -> list[Hit]:
        """Return hits, best first."""
        found = self._find(query).slice(0, depth)
        texts = self._texts(found["passage_id"])
        rows = zip(found["passage_id"].to_pylist(), texts, found["score"].to_pylist(), strict=True)
        return [Hit(*row) for row in rows]


class PassageTexts:
    """Passage texts by id, in a memory-mapped file: a large corpus does not fit into the memory of every replica."""

    def __init__(self, corpus: Artifact) -> None:
        ids = []
        # A mapped file stays readable after it is deleted, and its space is freed when the process ends in any way.
        with temporary_folder() as folder:
            file = str(folder / "passages.arrow")
            with pa.ipc.new_file(file, pa.schema([("text", pa.large_string())])) as writer:
                for shard in corpus.manifest["shards"]:
                    for batch in corpus.batches(shard, ["passage_id", "text"]):
                        ids.append(batch.column(0))
                        writer.write_batch(pa.record_batch([batch.column(1).cast(pa.large_string())], ["text"]))
            self._texts = pa.ipc.open_file(pa.memory_map(file)).read_all()["text"]
        self._row_of = Lookup(pa.chunked_array(ids, pa.string()))

    def __call__(self, passage_ids: pa.ChunkedArray) -> list[str]:
        """Return the text of each passage."""
        return [self._texts[int(row)].as_py() for row in self._row_of(passage_ids)]
