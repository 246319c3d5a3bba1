"""doc2query from the judged pairs to documents for the index, and a restart that makes only what is missing."""

from pathlib import Path

import pytest

from rayrank.core.artifacts import Store
from rayrank.core.config import (
    DatasetConfig,
    DemoConfig,
    Doc2QueryConfig,
    PipelineConfig,
    ResourcesConfig,
)
from rayrank.stages import corpus, doc2query_documents, train_doc2query

CONFIG = PipelineConfig(
    # Two shards of ten subjects each.
    dataset=DatasetConfig(demo=DemoConfig(subjects=20, categories=1), part_bytes=25_000),
    doc2query=Doc2QueryConfig(
        model="scratch", max_steps=12, batch_size=8, lr=1e-3, length=64, query_length=8, queries=2
    ),
    resources=ResourcesConfig(train_cpus=1),
)


@pytest.mark.slow
def test_a_restart_writes_the_missing_documents_and_samples_the_same(ray_cluster: None, tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    passages = corpus.run(CONFIG, store)
    trained = train_doc2query.run(CONFIG, store)

    assert trained.manifest["num_steps"] == 12
    assert trained.manifest["num_pairs"] > 9 * trained.manifest["num_held_out"] > 0

    documents = doc2query_documents.run(CONFIG, store)
    manifest = documents.manifest
    assert manifest["num_passages"] == passages.manifest["num_passages"]
    assert 0 < manifest["num_queries_written"] <= 2 * manifest["num_passages"]
    assert len(manifest["findings"]) == 3
    tables = [documents.read_table(name) for name in manifest["shards"]]
    for shard, table in zip(passages.manifest["shards"], tables, strict=True):
        texts = passages.read_table(shard)
        assert table["passage_id"] == texts["passage_id"]
        for text, expanded, queries in zip(texts["text"], table["text"], table["queries"], strict=True):
            assert expanded.as_py() == "\n".join([text.as_py(), *queries.as_py()])

    kept, lost = (Path(documents.path(name)) for name in manifest["shards"])
    Path(documents.path("manifest.json")).unlink()
    lost.unlink()
    made = kept.stat().st_mtime_ns

    again = doc2query_documents.run(CONFIG, store)

    assert kept.stat().st_mtime_ns == made
    assert [again.read_table(name) for name in again.manifest["shards"]] == tables
    assert again.manifest["findings"] == manifest["findings"]
