"""Run files of other systems: every format is recognised by its content, and a wrong one is one sentence."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rayrank.core.errors import DatasetError
from rayrank.data import run_files
from rayrank.data.run_formats import RunFile, files_digest, find_files

ROWS = [("q1", "p2", 1, 3.5), ("q1", "p1", 2, -1.0), ("q2", "p9", 1, 0.25)]
TREC = "".join(f"{query} Q0 {passage} {rank} {score} tag\n" for query, passage, rank, score in ROWS)
MS_MARCO = "".join(f"{query}\t{passage}\t{rank}\n" for query, passage, rank, _ in ROWS)
TOP1000 = "".join(f"{query}\t{passage}\twhat is {query}\tit is 1 2\n" for query, passage, _, _ in ROWS)


def rows_of(path: Path) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for block in RunFile(str(path)).blocks() for row in block.rows.to_pylist()]


def written(folder: Path, content: str | bytes, name: str = "run") -> Path:
    path = folder / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["run", "run.gz"])
def test_each_format_is_recognised_by_its_first_line(tmp_path: Path, name: str) -> None:
    assert rows_of(written(tmp_path, TREC, name)) == ROWS
    assert rows_of(written(tmp_path, "\n  \n" + TREC, name)) == ROWS
    assert rows_of(written(tmp_path, MS_MARCO, name)) == [(*row[:3], -row[2]) for row in ROWS]
    assert rows_of(written(tmp_path, TOP1000, name)) == [(*row[:2], place, 0.0) for place, row in enumerate(ROWS)]


@pytest.mark.parametrize("ids", [pa.string(), pa.large_string(), pa.int64(), pa.dictionary(pa.int32(), pa.string())])
def test_parquet_may_have_ids_of_any_type_and_no_ranks(tmp_path: Path, ids: pa.DataType) -> None:
    numbers = pa.array(["7", "7", "8"]).cast(ids) if pa.types.is_integer(ids) else pa.array(["7", "7", "8"], ids)
    table = pa.table({"score": [2.0, 1.0, 3.0], "passage_id": numbers, "query_id": numbers, "other": [1, 2, 3]})
    pq.write_table(table, tmp_path / "run")

    found = rows_of(tmp_path / "run")

    assert found == [("7", "7", 1, 2.0), ("7", "7", 2, 1.0), ("8", "8", 3, 3.0)]


def test_blocks_number_the_lines_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_files, "ROWS_AT_ONCE", 2)
    path = written(tmp_path, TOP1000.replace("q2", "\nq2", 1))

    blocks = list(RunFile(str(path)).blocks())

    assert [block.numbers.tolist() for block in blocks] == [[1, 2], [4]]
    assert [block.rows["rank"].to_pylist() for block in blocks] == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "it is empty."),
        ("\n\n", "it is empty."),
        ("q1 p1\n", "line 1: 2 fields, where a TREC run has the 6 of 'query Q0 passage rank score tag', MS MARCO's"),
        ("\nq1,p1,1,2.0\n", "line 2: 1 fields, where a TREC run has the 6"),
        ("q1\tp1\t1\t2.5\n", "line 1: 4 fields, where a TREC run has the 6"),
        (TREC + "q3 Q0 p1 1\n", "line 4: 4 fields, not the 6 of"),
        (TREC + "q3 Q0 p1 first 2.0 tag\n", "line 4: the rank 'first' is not a whole number"),
        (TREC + "q3 Q0 p1 1 inf tag\n", "line 4: the score inf is not a finite number"),
        (MS_MARCO + "q3\tp1\n", "line 4: 2 fields, not the 3 of 'query passage rank'"),
        (MS_MARCO + "q3\tp1\tx\n", "line 4: the rank 'x' is not a whole number from 0 on"),
        (TOP1000 + "q3\tp1\tquery\n", "line 4: 3 fields, not the 4 of 'query-id passage-id query passage' between"),
        (TOP1000 + "q3\t\tquery\tpassage\n", "line 4: an id is missing or is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, content: str, sentence: str) -> None:
    path = written(tmp_path, content)

    with pytest.raises(DatasetError) as caught:
        rows_of(path)

    assert str(caught.value).startswith(f"The run file {path} cannot be used: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"query_id": ["q"], "passage_id": ["p"]}, "it has no column score"),
        ({"query_id": ["q", "q"], "passage_id": ["p", None], "score": [1.0, 2.0]}, "row 2: there is no passage_id"),
        ({"query_id": ["q"], "passage_id": ["p"], "score": [float("nan")]}, "row 1: the score nan is not a finite"),
        ({"query_id": ["q"], "passage_id": ["p"], "score": ["high"]}, "Failed to parse string: 'high'"),
        ({"query_id": [[1]], "passage_id": ["p"], "score": [1.0]}, "Unsupported cast from list"),
    ],
)
def test_a_parquet_file_that_cannot_be_used_is_one_sentence(
    tmp_path: Path, columns: dict[str, list[object]], sentence: str
) -> None:
    path = tmp_path / "run.parquet"
    pq.write_table(pa.table(columns), path)

    with pytest.raises(DatasetError) as caught:
        rows_of(path)

    assert str(caught.value).startswith(f"The run file {path} cannot be used: ")
    assert sentence in str(caught.value)


def test_a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    packed = written(tmp_path, TREC * 100, "run.gz")
    packed.write_bytes(packed.read_bytes()[:-20])
    pq.write_table(pa.table({"query_id": ["q"], "passage_id": ["p"], "score": [1.0]}), tmp_path / "run.parquet")
    cut = written(tmp_path, (tmp_path / "run.parquet").read_bytes()[:-30], "cut.parquet")

    for path in (packed, cut):
        with pytest.raises(DatasetError) as caught:
            rows_of(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_files_are_named_by_path_folder_or_pattern(tmp_path: Path) -> None:
    for name in ("a.trec", "b.trec", "c.txt", "_SUCCESS", ".hidden", "more/d.trec", "odd[1].trec"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        written(tmp_path, TREC, name)

    def names(*paths: str) -> list[str]:
        return [str(Path(path).relative_to(tmp_path)) for path in find_files([f"{tmp_path}/{path}" for path in paths])]

    assert names("c.txt", "a.trec") == ["c.txt", "a.trec"]
    assert names("[ab].trec") == ["a.trec", "b.trec"]
    assert names("odd[1].trec") == ["odd[1].trec"]
    assert names("more") == ["more/d.trec"]
    assert names("") == ["a.trec", "b.trec", "c.txt", "more/d.trec", "odd[1].trec"]
    for missing in ("no.trec", "no*.trec"):
        with pytest.raises(DatasetError, match=r"does not exist: change `paths` of the run that reads it\.$"):
            names(missing)


def test_a_digest_depends_on_content_and_order_but_not_on_places(tmp_path: Path) -> None:
    one, two = written(tmp_path, TREC, "one"), written(tmp_path, MS_MARCO, "two")
    copy = written(tmp_path, TREC, "copy")

    assert files_digest([str(one)]) == files_digest([str(copy)]) != files_digest([str(two)])
    assert files_digest([str(one), str(two)]) != files_digest([str(two), str(one)])
