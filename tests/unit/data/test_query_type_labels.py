"""Files of query types that are joined to any dataset by query id."""

import gzip
import json
import re
from pathlib import Path

import pytest

from rayrank.core import flow
from rayrank.core.config import DatasetConfig, PipelineConfig
from rayrank.core.errors import ConfigError, ProblemsFound
from rayrank.core.overrides import build
from rayrank.data.digests import digested, varied
from rayrank.data.problems import Problems
from rayrank.data.query_type_labels import read_types
from rayrank.data.sources.lines import file_format

TYPES = {"q1": "number", "2": "any text"}
FORMS = {
    "types.tsv": "q1\tNUMBER \n2\t any text\n",
    "types": "q1\tnumber\n\n2\tany text\n",
    "headed.tsv": "query_id\ttype\nq1\tnumber\n2\tAny text",
    "types.csv": "q1,number\n2,any text\n",
    "quoted.csv": '\ufeffquery_id,query_type\r\n"q1", "Number"\r\n2,any text\r\n',
    "types.CSV": "Query_ID,Query_Type\nq1,number\n2,any text\n",
    "types.jsonl": '{"query_id": "q1", "query_type": "NUMBER"}\n{"_id": 2, "query_type": " any text"}\n',
}


def write(path: Path, text: str) -> str:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return str(path)


def problems(**decisions: str) -> Problems:
    return Problems(DatasetConfig.model_validate({"source": "mine", **decisions}))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_types_are_read_in_lower_case_from_tabs_csv_and_jsonl(tmp_path: Path, name: str, suffix: str) -> None:
    assert read_types(write(tmp_path / f"{name}{suffix}", FORMS[name]), problems()) == TYPES


def test_without_a_file_there_are_no_types() -> None:
    assert read_types("", problems()) == {}


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("types.tsv", "q2 number", "1 tab-separated fields, not query_id, query_type"),
        ("types.tsv", "q2\tnumber\tmore", "3 tab-separated fields, not query_id, query_type"),
        ("types.tsv", "q2\t ", "the query type is empty"),
        ("types.tsv", "\tnumber", "the query id is empty"),
        ("types.tsv", "q 2\tnumber", "the query id is 'q 2': a run file cannot hold an id with white space"),
        ("types.csv", "q2\tnumber", "1 comma-separated fields, not query_id, query_type"),
        ("types.csv", 'q2,"number', "not CSV: unexpected end of data"),
        ("types.jsonl", '{"query_id": "q2"}', "the field 'query_type' is missing"),
        ("types.jsonl", '{"query_type": "number"}', "the field 'query_id' is missing"),
        ("types.jsonl", "q2\tnumber", "not JSON: Expecting value at column 1"),
    ],
)
def test_a_line_that_cannot_be_read_is_a_problem_of_the_dataset(
    tmp_path: Path, name: str, line: str, reason: str
) -> None:
    first = {"types.tsv": "q1\tnumber", "types.csv": "q1,number"}.get(
        name, json.dumps({"query_id": "q1", "query_type": "number"})
    )
    file = write(tmp_path / name, f"{first}\n{line}\n")
    with pytest.raises(ProblemsFound, match=re.escape(f"{file} line 2: {reason}")):
        read_types(file, problems())
    found = problems(on_error="skip")
    assert read_types(file, found) == {"q1": "number"}
    assert found.report()["malformed"]["count"] == 1


def test_a_query_with_two_types_is_one_sentence(tmp_path: Path) -> None:
    file = write(tmp_path / "types.tsv", "q1\tnumber\nq2\tplace\nq1\tNumber\nq1\tperson\n")
    with pytest.raises(ConfigError) as caught:
        read_types(file, problems())
    assert str(caught.value) == (
        f"dataset.types_file={file} gives the query q1 two types, number and person: keep one of them."
    )


def test_a_file_without_types_is_one_sentence(tmp_path: Path) -> None:
    file = write(tmp_path / "types.csv", "query_id,query_type\n")
    with pytest.raises(ConfigError, match=r"types_file=.*types\.csv has no query types: name a file of"):
        read_types(file, problems())


def configured(file: str, *more: str) -> PipelineConfig:
    return digested(build("demo", assignments=["dataset.fingerprint=source", f"dataset.types_file={file}", *more]))


def test_the_content_and_format_of_a_file_are_in_the_key_of_the_corpus_and_its_path_is_not(tmp_path: Path) -> None:
    def key(name: str, text: str) -> str:
        return flow.key("corpus", configured(write(tmp_path / name, text)))

    before = key("types.tsv", "q1\tnumber\n")
    assert before != flow.key("corpus", configured(""))
    assert key("others.tsv", "q1\tnumber\n") == before
    assert key("types.tsv.gz", "q1\tnumber\n") == before
    assert key("types.tsv", "q1\tplace\n") != before
    assert key("types.csv", "q1\tnumber\n") != before


def test_digests_of_the_source_and_of_the_types_do_not_add_up_when_they_are_made_again(tmp_path: Path) -> None:
    file = write(tmp_path / "types.tsv", "q1\tnumber\n")
    once = configured(file)
    assert once.dataset.fingerprint.startswith("source+tsv-")
    assert digested(once) == once
    assert varied(once, {"dataset.types_file": ""}).dataset.fingerprint == "source"
    other = write(tmp_path / "other.tsv", "q1\tplace\n")
    assert varied(once, {"dataset.types_file": other}) == configured(other)


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "types.tsv", "q1\tnumber\n")
    assert configured("types.tsv").dataset.types_file == str(tmp_path / "types.tsv")


def test_a_file_that_cannot_be_read_is_one_sentence_before_the_job_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(f"{tmp_path}/none.tsv")
    assert str(caught.value) == (
        f"dataset.types_file={tmp_path}/none.tsv does not exist: name a file of `query_id<TAB>type` lines, or leave it "
        f"empty."
    )


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.csv", "csv"), ("a.csv.gz", "csv"), ("s3://b/a.JSONL.zst", "jsonl"), ("a.gz", "tsv"), ("csv", "tsv")],
)
def test_the_format_is_told_by_the_name(name: str, form: str) -> None:
    assert file_format(name) == form
