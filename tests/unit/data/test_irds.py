import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.irds import Irds

ir_datasets = pytest.importorskip("ir_datasets")


@pytest.fixture
def sea(tmp_path: Path) -> Iterator[str]:
    """A corpus with queries and judgments only in its train, dev and `other` children."""
    (tmp_path / "docs.tsv").write_text("".join(f"d{n}\ttext {n}\n" for n in range(10)))
    docs = ir_datasets.create_dataset(docs_tsv=tmp_path / "docs.tsv")
    ir_datasets.registry.register("local-sea", docs)
    for split in ("train", "dev", "other"):
        (tmp_path / f"{split}.tsv").write_text(f"{split}-1\ta query of {split}\n")
        (tmp_path / f"{split}.qrels").write_text(f"{split}-1 0 d3 2\n")
        own = ir_datasets.create_dataset(queries_tsv=tmp_path / f"{split}.tsv", qrels_trec=tmp_path / f"{split}.qrels")
        ir_datasets.registry.register(f"local-sea/{split}", ir_datasets.Dataset(docs, own))
    ir_datasets.registry.register("local-sea/bare", ir_datasets.Dataset(docs))
    ir_datasets.registry.register("local-sea/train/part", ir_datasets.registry["local-sea/train"])
    yield "local-sea"
    for name in [name for name in ir_datasets.registry if name.startswith("local-sea")]:
        del ir_datasets.registry._registered[name]


def test_a_dataset_gives_documents_queries_and_judgments_by_their_default_text(sea: str) -> None:
    source = Irds(f"{sea}/train")
    (part,) = source.parts(1)
    assert list(source.passages(part)) == [Passage(f"d{n}", f"text {n}") for n in range(10)]
    assert list(source.queries()) == [Query("train-1", "a query of train", "train")]
    assert list(source.judgments()) == [Judgment("train-1", "d3", 2, "train")]
    assert source.files() == []
    assert source.identity() == f"local-sea/train {ir_datasets.__version__}"


def test_a_corpus_without_queries_has_those_of_its_judged_children(sea: str) -> None:
    source = Irds(sea)
    assert {(query.query_id, query.split) for query in source.queries() if isinstance(query, Query)} == {
        ("train-1", "train"),
        ("dev-1", "dev"),
        ("other-1", "test"),
    }
    assert {judgment.split for judgment in source.judgments() if isinstance(judgment, Judgment)} == {
        "train",
        "dev",
        "test",
    }


def test_the_split_is_found_in_any_part_of_the_name(sea: str) -> None:
    assert [query.split for query in Irds(f"{sea}/train/part").queries() if isinstance(query, Query)] == ["train"]


def test_the_parts_do_not_change_after_the_documents_are_counted(sea: str) -> None:
    source = Irds(sea)
    before = source.parts(1)
    ir_datasets.load(sea).docs_store().build()
    assert source.parts(1) == before


def test_an_unknown_name_suggests_close_ones() -> None:
    with pytest.raises(DatasetError, match=r"no dataset beir/nfcorpos: did you mean .*beir/nfcorpus"):
        Irds("beir/nfcorpos")


def test_a_dataset_without_documents_or_judged_queries_is_refused(sea: str) -> None:
    with pytest.raises(DatasetError, match="beir has no documents: did you mean beir/arguana"):
        Irds("beir")
    with pytest.raises(DatasetError, match="local-sea/bare has no judged queries"):
        Irds(f"{sea}/bare")


def test_rows_that_the_package_cannot_read_are_named(sea: str, tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("d1\ttoo\tmany\n")
    source = Irds(sea)
    with pytest.raises(DatasetError, match="local-sea could not be read: expected 2 fields, got 3"):
        list(source.passages(source.parts(1)[0]))


def test_ids_with_white_space_are_malformed(sea: str, tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("d1\tone\nd 2\ttwo\n")
    (tmp_path / "train.tsv").write_text("q 1\ta query\n")
    source = Irds(f"{sea}/train")
    end = "a run file cannot hold an id with white space"
    assert list(source.passages(source.parts(1)[0])) == [
        Passage("d1", "one"),
        Malformed(f"{sea}/train", 2, f"the passage id is 'd 2': {end}"),
    ]
    assert list(source.queries()) == [Malformed(f"{sea}/train", 1, f"the query id is 'q 1': {end}")]


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(DatasetError, match=r"pip install rayrank\[irds\]"):
        Irds("beir/nfcorpus")
