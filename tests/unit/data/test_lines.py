import gzip
from pathlib import Path

import fsspec
import pytest
from hypothesis import given, strategies as st

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed
from rayrank.data.sources.fields import json_object, text_field, trec_judgment
from rayrank.data.sources.lines import BYTE_ORDER_MARK, BadRow, rows, split_bytes
from rayrank.data.sources.source import Part


def short(line: str) -> str:
    if "x" in line:
        raise BadRow(f"an x in {line!r}")
    return line


CONTENTS = st.lists(
    st.sampled_from([BYTE_ORDER_MARK, b"a", b"bc", b"", b"x", b"\xff", b"\n", b"\r\n", b"\xc3\xa9"]), max_size=40
)


@given(pieces=CONTENTS, part_bytes=st.integers(1, 30))
def test_parts_of_any_size_give_the_rows_and_line_numbers_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], part_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_bytes(b"".join(pieces))
    parts = split_bytes(str(path), part_bytes)
    assert [row for part in parts for row in rows(part, short)] == list(rows(Part(str(path)), short))


def test_a_malformed_row_is_reported_with_its_line_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(b"one\n\ntwo\nx\n\xffthree\nfour")
    expected = [
        "one",
        "two",
        Malformed(str(path), 4, "an x in 'x'"),
        Malformed(str(path), 5, "byte 1 is not UTF-8"),
        "four",
    ]
    for part_bytes in range(1, 25):
        parts = split_bytes(str(path), part_bytes)
        assert [row for part in parts for row in rows(part, short)] == expected


@pytest.mark.parametrize("part_bytes", [1, 3, 4, 100])
def test_a_byte_order_mark_at_the_beginning_of_a_file_is_not_part_of_its_first_line(
    tmp_path: Path, part_bytes: int
) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(BYTE_ORDER_MARK + b"one\n" + BYTE_ORDER_MARK + b"two\nx\n")
    found = [row for part in split_bytes(str(path), part_bytes) for row in rows(part, short)]
    assert found == ["one", "\ufefftwo", Malformed(str(path), 3, "an x in 'x'")]


def test_remote_storage_is_read_in_parts_like_a_local_file() -> None:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/lines/rows.txt", b"one\ntwo\nx\nthree\n")
    parts = split_bytes("memory://lines/rows.txt", 3)
    assert len(parts) > 1
    assert [row for part in parts for row in rows(part, short)] == [
        "one",
        "two",
        Malformed("memory://lines/rows.txt", 3, "an x in 'x'"),
        "three",
    ]


def test_a_compressed_file_is_one_part(tmp_path: Path) -> None:
    path = tmp_path / "rows.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert split_bytes(str(path), 1) == [Part(str(path))]
    assert list(rows(Part(str(path)), short)) == ["one", "two"]


@pytest.mark.parametrize("content", [gzip.compress(b"one\ntwo\n" * 999)[:40], b"plain text"], ids=["cut off", "plain"])
def test_a_damaged_compressed_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.txt.gz"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"rows\.txt\.gz is not a complete compressed file"):
        list(rows(Part(str(path)), short))


def test_a_missing_file_and_a_folder_in_its_place_are_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"missing\.txt does not exist"):
        list(rows(Part(str(tmp_path / "missing.txt")), short))
    with pytest.raises(DatasetError, match="cannot be read"):
        list(rows(Part(str(tmp_path)), short))


def test_a_judgment_may_have_tabs_or_spaces() -> None:
    assert trec_judgment("1\t0\tp7\t2", "dev") == Judgment("1", "p7", 2, "dev")
    assert trec_judgment("1 Q0  p7 -1 ", "dev") == Judgment("1", "p7", -1, "dev")
    assert trec_judgment("   ", "dev") is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 0 p7", "3 fields, not query-id"),
        ("1 0 p7 yes", "relevance 'yes' is not a whole number"),
        ("1 0 p7 99999999999", "too large"),
    ],
)
def test_a_broken_judgment_says_why(line: str, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        trec_judgment(line, "dev")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": ', "not JSON: Expecting value at column 10"),
        ('["text"]', "a JSON list, not an object"),
        ("[" * 100_000, "not usable JSON"),
        ("{}", "'text' is missing"),
        ('{"text": [1]}', "'text' is not text"),
        ('{"text": true}', "'text' is not text"),
        (r'{"text": "half \ud83d"}', "'text' is not whole Unicode text"),
    ],
)
def test_a_broken_field_says_why(line: str, reason: str) -> None:
    with pytest.raises(BadRow, match=reason):
        text_field(json_object(line), "text")
