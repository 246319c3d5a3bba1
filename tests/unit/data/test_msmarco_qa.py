import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import DatasetError, ProblemsFound
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.judged import Judged, read_judged
from rayrank.data.problems import Problems
from rayrank.data.sources import fingerprint, json_array
from rayrank.data.sources.msmarco_qa import MsMarcoQa


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


LISTS = {"is_selected": [0, 1], "passage_text": ["one", "two"], "url": ["a", "b"]}
OBJECTS = [{"is_selected": 0, "passage_text": "one", "url": "a"}, {"is_selected": 1, "passage_text": "two"}]


def row(query_id: Any = 7, passages: Any = LISTS, **more: Any) -> dict[str, Any]:
    return {"query_id": query_id, "query": "how many", "passages": passages, "query_type": "NUMERIC", **more}


def write(path: Path, text: str) -> MsMarcoQa:
    data = text.encode("utf-8", "surrogateescape")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return MsMarcoQa(str(path))


def passages(source: MsMarcoQa, part_bytes: int = 1 << 20) -> list[Passage | Malformed]:
    return [found for part in source.parts(part_bytes) for found in source.passages(part)]


@pytest.mark.parametrize("shape", [LISTS, OBJECTS])
@pytest.mark.parametrize("name", ["train_v2.1.json", "train_v1.1.json.gz"])
@pytest.mark.parametrize("form", ["array", "pretty", "lines"])
def test_both_versions_read_as_an_array_or_as_lines(tmp_path: Path, shape: Any, name: str, form: str) -> None:
    rows = [row(7, shape), row("8", shape)]
    lines = "\n".join(map(json.dumps, rows)) + "\n"
    text = lines if form == "lines" else json.dumps(rows, indent=2 if form == "pretty" else None)
    source = write(tmp_path / name, text)
    assert passages(source) == [Passage(digest("one"), "one"), Passage(digest("two"), "two")] * 2
    assert list(source.queries()) == [Query(i, "how many", "train", "numeric") for i in "78"]
    assert list(source.judgments()) == [Judgment(i, digest("two"), 1, "train") for i in "78"]


@pytest.mark.parametrize(
    ("name", "split"),
    [("dev_v2.1.json", "dev"), ("validation.jsonl", "dev"), ("eval_v2.1.json", "eval"), ("latest.json", "test")],
)
def test_the_split_is_a_word_of_the_name(tmp_path: Path, name: str, split: str) -> None:
    assert [
        query.split for query in write(tmp_path / name, json.dumps([row()])).queries() if isinstance(query, Query)
    ] == [split]


def test_a_type_is_in_lower_case_without_white_space(tmp_path: Path) -> None:
    source = write(tmp_path / "dev.json", json.dumps([row(query_type=" Numeric\n")]))
    assert list(source.queries()) == [Query("7", "how many", "dev", "numeric")]


def split_files(folder: Path) -> list[Path]:
    """Write two files of train, one of dev and one that names no split; each query has the same two passages."""
    names = ["a_train.jsonl", "b_train.json.gz", "dev_v2.1.json", "questions.jsonl.gz"]
    for number, name in enumerate(names):
        found = [row(10 * number + query) for query in range(3)]
        lines = "\n".join(map(json.dumps, found))
        write(folder / name, json.dumps(found) if name.endswith("2.1.json") else lines)
    return [folder / name for name in names]


SPLIT_QUERIES = [
    *(Query(str(number), "how many", "train", "numeric") for number in (0, 1, 2, 10, 11, 12)),
    *(Query(str(number), "how many", "dev", "numeric") for number in (20, 21, 22)),
    *(Query(str(number), "how many", "test", "numeric") for number in (30, 31, 32)),
]


@pytest.mark.parametrize("form", ["folder", "list", "list with spaces", "folder and a file of it"])
def test_a_folder_or_a_list_is_read_with_each_file_in_the_split_of_its_name(tmp_path: Path, form: str) -> None:
    files = split_files(tmp_path)
    for ignored in ("README.md", ".train.json", "notes.txt"):
        (tmp_path / ignored).write_text("not a dataset")
    texts = list(map(str, files))
    paths = {"folder": str(tmp_path), "list": ",".join(texts), "list with spaces": ", ".join(texts)}
    source = MsMarcoQa(paths.get(form, f"{tmp_path},{texts[1]}"))
    assert source.files() == texts
    assert list(source.queries()) == SPLIT_QUERIES
    assert list(source.judgments()) == [
        Judgment(query.query_id, digest("two"), 1, query.split) for query in SPLIT_QUERIES
    ]
    assert source.notes() == [f"{files[3]} is read as the split test: its name mentions no split"]


@pytest.mark.parametrize("part_bytes", [100, 1 << 20])
def test_every_part_of_every_file_can_be_read_by_itself(tmp_path: Path, part_bytes: int) -> None:
    files = split_files(tmp_path)
    parts = MsMarcoQa(str(tmp_path)).parts(part_bytes)
    assert list(dict.fromkeys(part.file for part in parts)) == list(map(str, files))
    assert len([part for part in parts if part.file == str(files[0])]) == (5 if part_bytes == 100 else 1)
    found = [passage for part in parts for passage in MsMarcoQa(str(tmp_path)).passages(part)]
    assert found == [Passage(digest("one"), "one"), Passage(digest("two"), "two")] * 12


def test_a_bad_row_names_its_own_file(tmp_path: Path) -> None:
    files = split_files(tmp_path)
    for place, line in ((0, 4), (2, 1)):
        text = files[place].read_text()
        files[place].write_text("[{}," + text[1:] if text.startswith("[") else text + "\n{}")
        assert Malformed(str(files[place]), line, "the field 'query_id' is missing") in passages(
            MsMarcoQa(str(tmp_path))
        )


def read(source: MsMarcoQa, **decisions: str) -> Judged:
    dataset = DatasetConfig.model_validate({"source": "msmarco-qa:mine", **decisions})
    return read_judged(source, dataset, Problems(dataset), {})


def test_a_query_in_the_files_of_two_splits_is_shared(tmp_path: Path) -> None:
    write(tmp_path / "train.json", json.dumps([row(1), row(2)]))
    write(tmp_path / "dev.json", json.dumps([row(2), row(3)]))
    source = MsMarcoQa(str(tmp_path))
    with pytest.raises(ProblemsFound, match=r"1 query in several splits \(2 in dev and train\).*on_shared=skip"):
        read(source)
    judged = read(source, on_shared="skip")
    assert {query.query_id: query.split for query in judged.queries} == {"1": "train", "2": "dev", "3": "dev"}


def test_a_file_of_train_alone_gets_a_dev_split(tmp_path: Path) -> None:
    found = [row(number) | {"query": f"question {number}"} for number in range(20)]
    source = write(tmp_path / "train.jsonl", "\n".join(map(json.dumps, found)))
    judged = read(source)
    splits = [query.split for query in judged.queries]
    assert (splits.count("train"), splits.count("dev")) == (16, 4)
    assert [judgment.split for judgment in judged.judgments].count("dev") == 4


def test_the_fingerprint_covers_every_file_of_a_folder_and_its_split(tmp_path: Path) -> None:
    files = split_files(tmp_path)
    before = fingerprint(MsMarcoQa(str(tmp_path)))
    assert fingerprint(MsMarcoQa(",".join(map(str, files)))) == before
    assert fingerprint(MsMarcoQa(",".join(map(str, files[:3])))) != before
    files[3].rename(tmp_path / "questions-dev.jsonl.gz")
    renamed = fingerprint(MsMarcoQa(str(tmp_path)))
    assert renamed != before
    write(files[2], json.dumps([row(99)]))
    assert fingerprint(MsMarcoQa(str(tmp_path))) != renamed


def test_a_folder_without_files_or_with_a_file_twice_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"has no MS MARCO QA files: expected .*\*\.json or .*\*\.jsonl"):
        MsMarcoQa(str(tmp_path))
    for name in ("train.json", "train.jsonl.gz"):
        write(tmp_path / name, json.dumps([row(1)]))
    with pytest.raises(DatasetError, match=r"has .*train\.json and .*train\.jsonl\.gz: keep one of them"):
        MsMarcoQa(str(tmp_path))
    with pytest.raises(DatasetError, match=r"dev\.json does not exist: check the path after --dataset"):
        MsMarcoQa(f"{tmp_path / 'train.json'},{tmp_path / 'dev.json'}")


def test_a_passage_selected_twice_is_one_judgment(tmp_path: Path) -> None:
    doubled = {"is_selected": [1, 1, 0], "passage_text": ["one", "one", "one"]}
    source = write(tmp_path / "test.json", json.dumps([row(7, doubled)]))
    assert list(source.judgments()) == [Judgment("7", digest("one"), 1, "test")]


def test_passages_without_is_selected_are_not_judged(tmp_path: Path) -> None:
    source = write(
        tmp_path / "eval.json", json.dumps([row(7, [{"passage_text": "one"}]), row(8, {"passage_text": ["two"]})])
    )
    assert len(passages(source)) == 2
    assert list(source.judgments()) == []


BAD = [
    ({"query": "no id", "passages": []}, "the field 'query_id' is missing"),
    (row(7, None), "the field 'passages' is missing or is not a list of objects"),
    (row(7, ["text"]), "the field 'passages' is missing or is not a list of objects"),
    (row(7, {"passage_text": "text"}), "the field 'passages' has no lists 'passage_text' and 'is_selected'"),
    (row(7, LISTS | {"is_selected": [1]}), "2 passages in 'passage_text' but 1 in 'is_selected'"),
    (row(7, LISTS | {"is_selected": [1, "x"]}), "the field 'is_selected' is 'x', not 0 or 1"),
    (row(7, LISTS | {"is_selected": [1, [1]]}), "the field 'is_selected' is [1], not 0 or 1"),
    (row(7, LISTS | {"passage_text": ["one", None]}), "the field 'passage_text' is missing"),
    (["a list"], "a JSON list, not an object"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD)
@pytest.mark.parametrize("form", ["array", "lines"])
def test_a_bad_row_is_reported_once_where_it_begins(tmp_path: Path, bad: Any, reason: str, form: str) -> None:
    path = tmp_path / "train.json"
    text = [json.dumps(value) for value in (row(1), bad, row(2))]
    source = write(path, "\n".join(text) if form == "lines" else "[\n" + ",\n".join(text) + "\n]")
    line = 2 if form == "lines" else 3
    assert [found for found in passages(source) if isinstance(found, Malformed)] == [Malformed(str(path), line, reason)]
    assert [query.query_id for query in source.queries() if isinstance(query, Query)] == ["1", "2"]
    assert len(list(source.judgments())) == 2


def test_bytes_that_are_not_utf8_make_only_their_row_malformed(tmp_path: Path) -> None:
    path = tmp_path / "train.json"
    bad = json.dumps(row(7)).replace("how many", "how \udce9")
    source = write(path, f"[{json.dumps(row(1))},\n{bad},\n{json.dumps(row(2))}]")
    assert passages(source)[2] == Malformed(str(path), 2, "the field 'query' is not whole Unicode text")
    assert [query.query_id for query in source.queries() if isinstance(query, Query)] == ["1", "2"]


@pytest.mark.parametrize("part_bytes", [1, 60, 150, 151, 400, 5000])
def test_parts_together_equal_the_whole_file(tmp_path: Path, part_bytes: int) -> None:
    lines = [json.dumps(row(n)) for n in range(12)]
    lines[5] = lines[5][:-9]
    source = write(tmp_path / "train.jsonl", "\n".join(lines))
    assert passages(source, part_bytes) == passages(source)
    assert [found.line for found in passages(source, part_bytes) if isinstance(found, Malformed)] == [6]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("[\n{},\n{]", 3, "Expecting property name"),
        ("[\n{}\n{}]", 3, "expected , or ]"),
        ('[\n{"a":\n "b', 3, "Unterminated string"),
        ('[\n{"a": "b\n"}]', 2, "Invalid control character"),
        ("[\n{}\n", 3, "expected , or ]"),
        ("[{},\n]", 2, "Expecting value"),
        ("[{}]\n\n{}", 3, "text after the array"),
        ("[" * 100_000, 1, "recursion"),
    ],
)
def test_a_broken_array_names_the_file_the_line_and_the_reason(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    source = write(tmp_path / "train.json", text)
    with pytest.raises(DatasetError, match=rf"train\.json is not JSON at line {line}: .*{reason}"):
        list(source.queries())


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_an_array_is_read_the_same_with_any_block_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(json_array, "BLOCK", block)
    values = [
        {"a": 'quote " \\ and é 𝄞 \u2028', "b": [-1.5e-7, True, None, float("-inf")]},
        123456789012,
        "x" * 50,
        {},
        [],
    ]
    path = tmp_path / "values.json"
    for text in (json.dumps(values), json.dumps(values, indent=1, ensure_ascii=False)):
        path.write_text(text)
        found = list(json_array.items(str(path)))
        assert [item.value for item in found] == values
    path.write_text("[\n1,\n\n{\n}, 2\n]\n")
    assert [item.line for item in json_array.items(str(path))] == [2, 4, 5]
    path.write_text("[\n]\n")
    assert list(json_array.items(str(path))) == []


def test_reading_stops_at_the_first_error_of_an_array(tmp_path: Path) -> None:
    path = tmp_path / "values.json"
    path.write_text('[{"a" 1},' + "0," * 1_000_000 + "0]")
    with path.open("rb") as stream:
        window = json_array._Window(str(path), stream)
        window.take("[")
        with pytest.raises(DatasetError, match="Expecting ':' delimiter"):
            window.value()
        assert stream.tell() < 1_000_000


def test_the_error_for_a_file_of_columns_says_how_to_convert_it(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="holds columns, not rows"):
        write(tmp_path / "train_v2.1.json", json.dumps({"answers": {"0": ["x"]}, "query": {"0": "y"}}))


def test_the_sample_file_is_read_completely(shared_data: Path) -> None:
    source = MsMarcoQa(str(shared_data / "msmarco-qa-sample" / "ms_marco_sample.json.gz"))
    found = passages(source)
    assert sum(isinstance(one, Passage) for one in found) == len(found) == 1629
    assert len(list(source.queries())) == 200
    assert {query.query_type for query in source.queries() if isinstance(query, Query)} == {
        "description",
        "numeric",
        "entity",
        "location",
        "person",
    }
    assert len(list(source.judgments())) == 211
