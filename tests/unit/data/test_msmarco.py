import gzip
from pathlib import Path

import pytest

from rayrank.core.errors import DatasetError
from rayrank.core.records import Candidate, Judgment, Malformed, Passage, Query
from rayrank.data.sources import candidates_digest, fingerprint
from rayrank.data.sources.msmarco import MsMarco


def write(folder: Path, **files: str) -> str:
    texts = {
        "collection.tsv": "0\tfirst passage\n1\tsecond passage\n",
        "queries.dev.tsv": "10\tdev query\n",
        "qrels.dev.tsv": "10\t0\t1\t1\n",
    } | {name.replace("__", "."): text for name, text in files.items()}
    for name, text in texts.items():
        data = text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return str(folder)


def test_a_folder_gives_passages_queries_and_judgments_of_every_split(tmp_path: Path) -> None:
    source = MsMarco(
        write(tmp_path, queries__train__tsv__gz="20\ttrain query\n", qrels__train__tsv="20 0 0 1\n20 0 1 2\n")
    )
    (part,) = source.parts(1 << 20)
    assert list(source.passages(part)) == [Passage("0", "first passage"), Passage("1", "second passage")]
    assert list(source.queries()) == [Query("10", "dev query", "dev"), Query("20", "train query", "train")]
    assert list(source.judgments()) == [
        Judgment("10", "1", 1, "dev"),
        Judgment("20", "0", 1, "train"),
        Judgment("20", "1", 2, "train"),
    ]
    assert list(source.candidates()) == []


def test_small_queries_and_judgments_are_read_instead_of_the_full_ones(tmp_path: Path) -> None:
    source = MsMarco(
        write(tmp_path, queries__dev__small__tsv="11\tsmall query\n", qrels__dev__small__tsv="11\t0\t0\t1\n")
    )
    assert list(source.queries()) == [Query("11", "small query", "dev")]
    assert list(source.judgments()) == [Judgment("11", "0", 1, "dev")]
    assert not any("dev.tsv" in path for path in source.files())
    assert [note.split()[0].rsplit("/")[-1] for note in source.notes()] == ["qrels.dev.tsv", "queries.dev.tsv"]


def test_small_queries_without_small_judgments_are_ignored(tmp_path: Path) -> None:
    source = MsMarco(write(tmp_path, queries__dev__small__tsv="11\tsmall query\n"))
    assert list(source.queries()) == [Query("10", "dev query", "dev")]


@pytest.mark.parametrize("name", ["top1000.dev", "top1000.dev.tsv", "top1000.dev.tsv.gz"])
def test_candidates_rank_in_order_of_appearance_within_their_query(tmp_path: Path, name: str) -> None:
    text = "10\t1\tq\tp\n11\t0\tq\tp\nbroken\n10\t0\tq\tp\n"
    source = MsMarco(write(tmp_path, **{name: text}))
    reason = "1 tab-separated fields, not query-id, passage-id, query, passage"
    assert list(source.candidates()) == [
        Candidate("10", "1", 1, -1.0),
        Candidate("11", "0", 1, -1.0),
        Malformed(str(tmp_path / name), 3, reason),
        Candidate("10", "0", 2, -2.0),
    ]


def test_broken_rows_have_the_same_lines_in_parts_of_any_size(tmp_path: Path) -> None:
    lines = [f"{n}\tpassage {'é' * n}".encode() for n in range(30)]
    lines[3], lines[11], lines[29] = b"no tab", b"\t no id", b"29\tlatin \xe9"
    (tmp_path / "x").mkdir()
    source = MsMarco(write(tmp_path))
    path = tmp_path / "collection.tsv"
    path.write_bytes(b"\n".join(lines))
    for part_bytes in (1, 2, 5, 13, 40, 100, 333, 10_000):
        found = [row for part in source.parts(part_bytes) for row in source.passages(part)]
        assert [row for row in found if isinstance(row, Malformed)] == [
            Malformed(str(path), 4, "1 tab-separated fields, not passage-id, text"),
            Malformed(str(path), 12, "the passage-id is empty"),
            Malformed(str(path), 30, "byte 10 is not UTF-8"),
        ]
        assert [row.passage_id for row in found if isinstance(row, Passage)] == [
            str(n) for n in range(30) if n not in (3, 11, 29)
        ]


def test_a_missing_or_ambiguous_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, queries__dev__tsv__gz="10\tdev query\n")
    with pytest.raises(DatasetError, match="keep one of them"):
        MsMarco(str(tmp_path))
    (tmp_path / "queries.dev.tsv.gz").unlink()
    (tmp_path / "qrels.dev.tsv").unlink()
    with pytest.raises(DatasetError, match="has no qrels"):
        MsMarco(str(tmp_path))
    (tmp_path / "collection.tsv").unlink()
    with pytest.raises(DatasetError, match=r"collection\.tsv"):
        MsMarco(str(tmp_path))


def test_an_archive_beside_its_extracted_file_is_ignored_and_two_extracted_files_are_refused(tmp_path: Path) -> None:
    row = "10\t0\tdev query\tfirst passage\n"
    source = MsMarco(write(tmp_path, top1000__dev__tsv=row, top1000__dev__tar__gz="whole download"))
    assert list(source.candidates()) == [Candidate("10", "0", 1, -1.0)]
    with pytest.raises(DatasetError, match="keep one of them"):
        MsMarco(write(tmp_path, top1000__dev=row))


def test_candidates_have_a_digest_of_their_own(tmp_path: Path) -> None:
    source = MsMarco(write(tmp_path, top1000__dev__tsv="10\t0\tdev query\tfirst passage\n"))
    before = fingerprint(source), candidates_digest(source)
    write(tmp_path, top1000__dev__tsv="10\t1\tdev query\tsecond passage\n")
    after = fingerprint(source), candidates_digest(source)
    assert before[0] == after[0]
    assert before[1] != after[1]
