"""First stages that answer one query at a time."""

from pathlib import Path

import pytest

from rayrank.core.artifacts import Artifact
from rayrank.core.errors import ConfigError
from rayrank.serve.config import SearchConfig
from rayrank.serve.first_stages import corpus_of, first_stage, open_run
from rayrank.serve.search import RunSearch


@pytest.mark.parametrize("kind", ["search", "dense", "interpolate", "rrf"])
def test_a_query_of_the_dataset_finds_what_the_run_on_storage_has(run_folders: dict[str, Path], kind: str) -> None:
    run = open_run(str(run_folders[kind]))
    queries = corpus_of(run).read_table("queries.parquet").to_pylist()
    # On dev a combiner cross-fits its weight, so its rows may differ from those of the weight that is served.
    texts = {query["query_id"]: query["text"] for query in queries if query["split"] == "test"}
    stored = [row for name in run.names("test") for row in run.read_table(name).to_pylist()]
    find = first_stage(run)
    for query_id in list(texts)[:10]:
        expected = [row for row in stored if row["query_id"] == query_id]
        found = find(texts[query_id]).to_pylist()
        assert [row["passage_id"] for row in found] == [row["passage_id"] for row in expected]
        assert [row["score"] for row in found] == pytest.approx([row["score"] for row in expected], rel=2e-3, abs=2e-3)


def test_hits_have_the_texts_of_the_corpus(run_folders: dict[str, Path]) -> None:
    search = RunSearch(SearchConfig(run=str(run_folders["dense"])))
    corpus = corpus_of(open_run(str(run_folders["dense"])))
    texts = {
        row["passage_id"]: row["text"]
        for name in corpus.manifest["shards"]
        for row in corpus.read_table(name).to_pylist()
    }
    hits = search("where is the lighthouse", 3)
    assert len(hits) == 3
    assert [hit.text for hit in hits] == [texts[hit.passage_id] for hit in hits]


def test_a_storage_of_an_unknown_protocol_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"search\.run=s4://bucket/dense/abc cannot be read: Protocol not known: s4"):
        open_run("s4://bucket/dense/abc")


def test_a_folder_that_is_no_first_stage_is_refused(run_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no first stage that can be searched"):
        open_run(str(tmp_path))
    corpus = corpus_of(open_run(str(run_folders["search"])))
    with pytest.raises(ConfigError, match=r"where KIND is one of search, dense, interpolate, rrf"):
        open_run(Artifact(corpus.root, "corpus", corpus.key).url)
