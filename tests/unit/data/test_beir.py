import gzip
import json
from pathlib import Path

import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources import open_source
from rayrank.data.sources.beir import Beir


def write(folder: Path, corpus: str = '{"_id": "p1", "title": "Tides", "text": "Twice a day."}\n') -> str:
    (folder / "qrels").mkdir()
    (folder / "corpus.jsonl").write_text(corpus)
    metadata = {"query_type": "number", "domain": "seas"}
    queries = [
        {"_id": 1, "text": "how often", "metadata": metadata},
        {"_id": "q2", "text": "why", "metadata": {"query_type": None}},
    ]
    text = "\n".join(map(json.dumps, queries))
    (folder / "queries.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\n1\tp1\t1\n")
    (folder / "qrels" / "test.tsv").write_text("q2\tp1\t2\nq2\tp1\n")
    return str(folder)


def test_a_folder_gives_passages_queries_and_judgments(tmp_path: Path) -> None:
    source = Beir(write(tmp_path))
    (part,) = source.parts(1 << 20)
    assert list(source.passages(part)) == [Passage("p1", "Tides\nTwice a day.")]
    assert list(source.queries()) == [Query("1", "how often", "", "number"), Query("q2", "why")]
    assert list(source.judgments()) == [
        Judgment("1", "p1", 1, "dev"),
        Judgment("q2", "p1", 2, "test"),
        Malformed(str(tmp_path / "qrels/test.tsv"), 2, "2 tab-separated fields, not query-id, corpus-id, score"),
    ]


def test_a_query_has_the_type_that_is_in_the_named_field(tmp_path: Path) -> None:
    source = open_source(DatasetConfig(source=f"beir:{write(tmp_path)}", type_field="domain"))
    assert list(source.queries()) == [Query("1", "how often", "", "seas"), Query("q2", "why")]


def test_a_query_has_the_group_that_is_in_the_named_field(tmp_path: Path) -> None:
    source = open_source(DatasetConfig(source=f"beir:{write(tmp_path)}", group_field="domain"))
    assert [query.group for query in source.queries()] == ["seas", ""]
    with pytest.raises(DatasetError, match=r"dataset\.group_field=topic is in the metadata of no query"):
        list(Beir(str(tmp_path), group_field="topic").queries())


@pytest.mark.parametrize("name", ["valid", "val", "Validation", "dev"])
def test_a_validation_file_is_the_dev_split(tmp_path: Path, name: str) -> None:
    write(tmp_path)
    (tmp_path / "qrels" / "dev.tsv").rename(tmp_path / "qrels" / f"{name}.tsv")
    assert Judgment("1", "p1", 1, "dev") in list(Beir(str(tmp_path)).judgments())


def test_a_field_that_no_query_has_is_named(tmp_path: Path) -> None:
    source = Beir(write(tmp_path), "domian")
    with pytest.raises(DatasetError, match=r"type_field=domian is in the metadata of no query of .*queries\.jsonl\.gz"):
        list(source.queries())


@pytest.mark.parametrize("part_bytes", [1, 7, 50, 64, 200, 10_000])
def test_parts_together_equal_the_whole_corpus(tmp_path: Path, part_bytes: int) -> None:
    lines = [json.dumps({"_id": str(n), "text": f"é text {n}"}, ensure_ascii=False) for n in range(20)]
    lines[7] = '{"_id": "7"}'
    source = Beir(write(tmp_path, "\n".join(lines)))
    found = [row for part in source.parts(part_bytes) for row in source.passages(part)]
    assert len(found) == 20
    assert found[7] == Malformed(str(tmp_path / "corpus.jsonl"), 8, "the field 'text' is missing")
    assert found[19] == Passage("19", "é text 19")


def test_a_missing_or_ambiguous_file_is_named(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "corpus.jsonl.gz").write_bytes(b"")
    with pytest.raises(DatasetError, match="keep one of them"):
        Beir(str(tmp_path))
    (tmp_path / "corpus.jsonl.gz").unlink()
    (tmp_path / "corpus.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"no corpus\.jsonl"):
        Beir(str(tmp_path))
    with pytest.raises(DatasetError, match="does not exist"):
        Beir(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("name", "passages", "queries"), [("insuranceqa", 27_413, 14_889), ("medquad", 15_809, 13_513)]
)
def test_real_datasets_are_read_without_malformed_rows(
    shared_data: Path, name: str, passages: int, queries: int
) -> None:
    source = Beir(str(shared_data / name))
    found = [row for part in source.parts(1 << 26) for row in source.passages(part)]
    assert sum(isinstance(row, Passage) for row in found) == len(found) == passages
    assert sum(isinstance(row, Query) for row in source.queries()) == queries
    assert all(isinstance(row, Judgment) for row in source.judgments())
