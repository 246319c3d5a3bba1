import gzip
from pathlib import Path
from typing import Any

import cbor
import pytest

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.car import Car

OUTLINES, PARAGRAPHS = 1, 2


def paragraph(name: str, text: str) -> list[Any]:
    link = [1, [0, "Sea", [], b"enwiki:Sea", " the sea"]]
    return [0, name.encode(), [[0, text], link]]


def section(heading: str, *children: Any) -> list[Any]:
    return [0, heading, heading.replace(" ", "%20").encode(), list(children)]


PAGE = [
    0,
    "Green sea turtle",
    b"enwiki:Green%20sea%20turtle",
    [section("Range", section("Nesting sites")), section("Life cycle")],
    [0],
    [],
]


def car_file(kind: int, *records: Any) -> bytes:
    header = cbor.dumps(["CAR", [kind], []])
    return bytes(header + b"\x9f" + b"".join(map(cbor.dumps, records)) + b"\xff")


def write(folder: Path, paragraphs: bytes | None = None, name: str = "fold-0-train.pages.cbor") -> Car:
    folder.mkdir(parents=True, exist_ok=True)
    default = car_file(PARAGRAPHS, paragraph("p1", "Turtles in"), paragraph("p2", "Eggs by"))
    (folder / "dedup.articles-paragraphs.cbor").write_bytes(default if paragraphs is None else paragraphs)
    (folder / f"{name}-outlines.cbor").write_bytes(car_file(OUTLINES, PAGE))
    path = "enwiki:Green%20sea%20turtle/Range/Nesting%20sites"
    (folder / f"{name}-hierarchical.qrels").write_text(f"{path} 0 p2 1\n")
    (folder / f"{name}-article.qrels").write_text("enwiki:Green%20sea%20turtle 0 p1 1\n")
    return Car(str(folder))


def passages(source: Car) -> list[Passage | Malformed]:
    return [found for part in source.parts(1 << 20) for found in source.passages(part)]


def test_paragraphs_section_paths_and_hierarchical_judgments_are_read(tmp_path: Path) -> None:
    source = write(tmp_path / "car")
    assert passages(source) == [Passage("p1", "Turtles in the sea"), Passage("p2", "Eggs by the sea")]
    page = "enwiki:Green%20sea%20turtle"
    assert list(source.queries()) == [
        Query(f"{page}/Range", "Green sea turtle Range", "train"),
        Query(f"{page}/Range/Nesting%20sites", "Green sea turtle Range Nesting sites", "train"),
        Query(f"{page}/Life%20cycle", "Green sea turtle Life cycle", "train"),
    ]
    assert list(source.judgments()) == [Judgment(f"{page}/Range/Nesting%20sites", "p2", 1, "train")]


def test_other_judgments_are_read_if_there_are_no_hierarchical_ones(tmp_path: Path) -> None:
    write(tmp_path / "car")
    next((tmp_path / "car").glob("*-hierarchical.qrels")).unlink()
    assert [row.passage_id for row in Car(str(tmp_path / "car")).judgments() if isinstance(row, Judgment)] == ["p1"]


def test_files_without_a_header_are_read_too(tmp_path: Path) -> None:
    records = b"".join(cbor.dumps(paragraph(f"p{n}", "Turtles in")) for n in range(3))
    assert [row.passage_id for row in passages(write(tmp_path / "car", records)) if isinstance(row, Passage)] == [
        "p0",
        "p1",
        "p2",
    ]


@pytest.mark.parametrize(
    ("folder", "name", "split"),
    [
        ("car", "test.pages.cbor", "test"),
        ("benchmarkY1-test", "pages.cbor", "test"),
        ("benchmarkY1-test", "fold-4-train.pages.cbor", "dev"),
        ("car/train", "fold-4.pages.cbor", "dev"),
        ("dev", "train.pages.cbor", "train"),
        ("car", "pages.cbor", "train"),
    ],
)
def test_the_split_is_named_by_the_file_or_else_its_folder(tmp_path: Path, folder: str, name: str, split: str) -> None:
    source = write(tmp_path / folder, name=name)
    assert {query.split for query in source.queries() if isinstance(query, Query)} == {split}
    assert {judgment.split for judgment in source.judgments() if isinstance(judgment, Judgment)} == {split}
    assert set(source.identity().split()) == {split}


WHOLE = car_file(PARAGRAPHS, paragraph("p1", "Turtles in"), paragraph("p2", "Eggs by"))


@pytest.mark.parametrize("size", range(len(WHOLE)))
def test_a_file_cut_off_anywhere_is_named(tmp_path: Path, size: int) -> None:
    with pytest.raises(DatasetError, match=r"dedup\.articles-paragraphs\.cbor is damaged"):
        passages(write(tmp_path / "car", WHOLE[:size]))


@pytest.mark.parametrize(
    "damaged",
    [
        b"not CBOR at all",
        WHOLE.replace(b"p1", b"\xff\xff"),
        WHOLE.replace(b"\x6aTurtles in", b"\x7b\x00\x00\x00\x01\x00\x00\x00\x00Turtles in"),
        car_file(PARAGRAPHS, [7, b"p1", []]),
        car_file(PARAGRAPHS, {"a": 1}),
        car_file(OUTLINES, PAGE),
    ],
)
def test_a_damaged_file_or_one_of_another_kind_is_named(tmp_path: Path, damaged: bytes) -> None:
    with pytest.raises(DatasetError, match="is damaged, or not what its name says, after 0 records"):
        passages(write(tmp_path / "car", damaged))


def test_a_cut_off_compressed_file_is_named(tmp_path: Path) -> None:
    source = write(tmp_path / "car")
    path = tmp_path / "car" / "more-paragraphs.cbor.gz"
    path.write_bytes(gzip.compress(WHOLE)[:-20])
    with pytest.raises(DatasetError, match=r"more-paragraphs\.cbor\.gz"):
        list(source.passages(source.parts(1)[0]._replace(file=str(path))))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    write(tmp_path / "car")
    (tmp_path / "car" / "dedup.articles-paragraphs.cbor").unlink()
    with pytest.raises(DatasetError, match="has no paragraphs"):
        Car(str(tmp_path / "car"))
