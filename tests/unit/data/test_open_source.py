import shutil
from pathlib import Path

import fsspec
import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.records import Passage
from rayrank.data.sources import absolute, fingerprint, open_source
from rayrank.data.sources.msmarco import MsMarco
from rayrank.data.sources.source import Source


def write(folder: Path) -> Path:
    folder.mkdir()
    (folder / "collection.tsv").write_text("0\tfirst\n")
    (folder / "queries.dev.tsv").write_text("1\tquery\n")
    (folder / "qrels.dev.tsv").write_text("1 0 0 1\n")
    return folder


def opened(source: str) -> Source:
    return open_source(DatasetConfig(source=source))


@pytest.mark.parametrize("source", ["elsewhere:path", "msmarco", "msmarco:", "", ":path", "msmarco-qa: ,"])
def test_an_unknown_kind_or_a_missing_path_lists_the_kinds(source: str) -> None:
    with pytest.raises(DatasetError) as caught:
        opened(source)
    message = str(caught.value)
    assert repr(source) in message
    for kind in (
        "demo",
        "beir:PATH",
        "msmarco:PATH",
        "msmarco-qa:PATH",
        "trec:PATH",
        "car:PATH",
        "irds:NAME",
        "mnli:PATH",
    ):
        assert kind in message


@pytest.mark.parametrize("source", ["demo", "msmarco:path"])
def test_a_type_field_is_refused_for_sources_other_than_beir(source: str) -> None:
    with pytest.raises(ConfigError, match=rf"type_field=domain is read from a beir:DIR only, not from {source}"):
        open_source(DatasetConfig(source=source, type_field="domain"))


@pytest.mark.parametrize("source", ["demo", "msmarco:path"])
def test_a_passage_template_is_refused_for_sources_other_than_beir(source: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"template=\{{text\}}\\n\{{url\}} is read from a beir:DIR only, not from {source}"
    ):
        open_source(DatasetConfig(source=source, passage_template="{text}\n{url}"))


def test_every_path_of_a_list_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute("msmarco-qa:train.json, /data/dev.json") == f"msmarco-qa:{tmp_path}/train.json,/data/dev.json"
    assert absolute("msmarco-qa:s3://b/train.json,dev.json") == f"msmarco-qa:s3://b/train.json,{tmp_path}/dev.json"
    assert absolute("msmarco:a,b") == f"msmarco:{tmp_path}/a,b"
    (tmp_path / "a,b.json").write_text("[]")
    assert absolute("msmarco-qa:a,b.json") == f"msmarco-qa:{tmp_path}/a,b.json"


def test_a_list_on_several_storages_names_what_cannot_be_reached() -> None:
    fsspec.filesystem("memory").pipe("/qa/train.json", b"[]")
    with pytest.raises(DatasetError, match="cannot be reached: Protocol not known: nosuch"):
        opened("msmarco-qa:memory://qa/train.json,nosuch://dev.json")


@pytest.mark.parametrize("kind", ["beir", "msmarco", "msmarco-qa", "trec", "car"])
def test_a_path_that_does_not_exist_is_named(tmp_path: Path, kind: str) -> None:
    with pytest.raises(DatasetError, match=r"nowhere does not exist: check the path after --dataset\."):
        opened(f"{kind}:{tmp_path / 'nowhere'}")


def test_a_source_may_be_on_any_storage() -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe(
        {"/set/collection.tsv": b"0\tfirst\n", "/set/queries.dev.tsv": b"1\tq\n", "/set/qrels.dev.tsv": b"1 0 0 1\n"}
    )
    source = opened("msmarco:memory://set")
    assert isinstance(source, MsMarco)
    assert [row for part in source.parts(9) for row in source.passages(part)] == [Passage("0", "first")]
    before = fingerprint(source)
    filesystem.pipe("/set/collection.tsv", b"0\tother text\n")
    assert fingerprint(source) != before


def test_the_fingerprint_depends_on_the_content_and_not_on_the_folder(tmp_path: Path) -> None:
    first = write(tmp_path / "first")
    second = Path(shutil.copytree(first, tmp_path / "second"))
    before = fingerprint(opened(f"msmarco:{first}"))
    assert fingerprint(opened(f"msmarco:{second}")) == before
    (second / "collection.tsv").write_text("0\tFirst\n")
    assert fingerprint(opened(f"msmarco:{second}")) != before
    (first / "queries.dev.tsv").rename(first / "queries.test.tsv")
    assert fingerprint(opened(f"msmarco:{first}")) != before


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = write(tmp_path / "set [v1] * final?")
    assert len(opened(f"msmarco:{folder}").files()) == 3
