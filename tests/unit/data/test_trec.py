import gzip
from pathlib import Path

import pytest

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.trec import Trec, kind_of

DOCS = """<DOC>
<DOCNO> FT-1 </DOCNO>
plain text &amp; more
</DOC>
"""
TOPICS = "<top>\n<num>1</num><title>\nA title\n</title>\n</top>\n"
SMART_DOCS = ".I 1\n.T\nA title\n.W\nAn\nabstract\n.A\nAuthor, A.\n.I 2\n.T\nOnly a title\n.X\n1 5 1\n"
SMART_QUERIES = ".I 1\n.W\n What is\nasked?\n.N\n a note\n"


def write(folder: Path, docs: str | bytes = DOCS, topics: str | bytes = TOPICS, qrels: str = "1 0 FT-1 1\n") -> Trec:
    for name, text in (("a", docs), ("b", topics), ("c", qrels)):
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return Trec(str(folder))


def passages(source: Trec) -> list[Passage | Malformed]:
    return [found for part in source.parts(1 << 20) for found in source.passages(part)]


def test_files_are_recognised_by_content_in_any_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "x.gz").write_bytes(gzip.compress(DOCS.encode()))
    (tmp_path / "deep" / "y").write_text(TOPICS)
    (tmp_path / "z").write_text("1 0 FT-1 1\n")
    (tmp_path / "README.md").write_text("# A set\nThe documents lie between `<DOC>` and `</DOC>`.\n")
    (tmp_path / ".hidden").write_text(DOCS)
    source = Trec(str(tmp_path))
    assert passages(source) == [Passage("FT-1", "plain text & more")]
    assert list(source.queries()) == [Query("1", "A title", "test")]
    assert list(source.judgments()) == [Judgment("1", "FT-1", 1, "test")]
    assert len(source.files()) == 3


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("<TITLE>Head</TITLE>\n<DATE>1994</DATE>\n<TEXT>\n<P>Body</P> a < b\n</TEXT>", "Head\nBody  a < b"),
        ("<headline>Head</headline><text>one</text>\n<text>two</text>", "Head\none\ntwo"),
        ("just text <b>bold</b> <!-- unsaid -->", "just text  bold"),
        ("", ""),
    ],
)
def test_a_document_is_its_title_and_text_without_tags(tmp_path: Path, body: str, text: str) -> None:
    source = write(tmp_path, f"<doc><docno>1</docno>{body}</doc>")
    assert passages(source) == [Passage("1", text)]


def test_several_documents_may_share_a_line(tmp_path: Path) -> None:
    source = write(tmp_path, "<DOC><DOCNO>1</DOCNO>one</DOC> <DOC><DOCNO>2</DOCNO>two</DOC>")
    assert passages(source) == [Passage("1", "one"), Passage("2", "two")]


def test_classic_topics_with_open_tags_give_their_titles(tmp_path: Path) -> None:
    topics = """<top>
<head> Tipster Topic Description
<num> Number: 051
<dom> Domain: International Economics
<title> Topic: Airbus
  Subsidies

<desc> Description:
Document will discuss a dispute.
</top>

<top>
<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations.
</top>
"""
    source = write(tmp_path, topics=topics)
    assert list(source.queries()) == [
        Query("51", "Airbus Subsidies", "test"),
        Query("301", "International Organized Crime", "test"),
    ]


def test_broken_documents_are_named_by_line_and_the_others_read(tmp_path: Path) -> None:
    docs = b"""<?xml version="1.0"?>
<DOC>
<DOCNO>1</DOCNO>
never closed
<DOC>
<DOCNO>2</DOCNO>
latin \xe9 here
</DOC>
<DOC>
no number
</DOC>
</DOC>
<DOC><DOCNO>5</DOCNO>fine</DOC>
<DOC>
<DOCNO>6</DOCNO>
"""
    source = write(tmp_path, docs)
    path = str(tmp_path / "a")
    assert passages(source) == [
        Malformed(path, 2, "<DOC> is never closed"),
        Malformed(path, 7, "byte 7 is not UTF-8"),
        Malformed(path, 9, "the document has no <DOCNO>"),
        Malformed(path, 12, "</DOC> without <DOC>"),
        Passage("5", "fine"),
        Malformed(path, 14, "<DOC> is never closed"),
    ]


def test_a_document_number_with_white_space_is_malformed(tmp_path: Path) -> None:
    source = write(tmp_path, "<DOC><DOCNO> FT 911 1 </DOCNO>one</DOC>\n<DOC><DOCNO> FT911-1 </DOCNO>two</DOC>")
    reason = "the <DOCNO> is 'FT 911 1': a run file cannot hold an id with white space"
    assert passages(source) == [Malformed(str(tmp_path / "a"), 1, reason), Passage("FT911-1", "two")]


def test_broken_topics_and_judgments_are_named_by_line(tmp_path: Path) -> None:
    topics = "<top><num>1<title>ok</top>\n<top><num>2</top>\n<top><title>x</title></top>"
    source = write(tmp_path, topics=topics, qrels="1 0 a 1\n1 0 b\n1 0 c x\n1 0 d 0\n1 0 e 1\n")
    path = str(tmp_path / "b")
    assert list(source.queries()) == [
        Query("1", "ok", "test"),
        Malformed(path, 2, "the topic has no <title>"),
        Malformed(path, 3, "the topic has no <num>"),
    ]
    found = list(source.judgments())
    assert [row.line for row in found if isinstance(row, Malformed)] == [2, 3]
    assert len(found) == 5


def test_smart_files_give_titles_with_abstracts_queries_and_binary_judgments(tmp_path: Path) -> None:
    source = write(tmp_path, SMART_DOCS, SMART_QUERIES, "01 0002  0 0\n01 1 0 0\n10 100 0 0\n")
    assert passages(source) == [Passage("1", "A title\nAn\nabstract"), Passage("2", "Only a title")]
    assert list(source.queries()) == [Query("1", "What is asked?", "test")]
    assert list(source.judgments()) == [
        Judgment("1", "2", 1, "test"),
        Judgment("1", "1", 1, "test"),
        Judgment("10", "100", 1, "test"),
    ]


def test_smart_documents_without_titles_are_the_larger_file(tmp_path: Path) -> None:
    source = write(tmp_path, ".I 1\n.W\n" + "a long abstract\n" * 9, SMART_QUERIES, "1 0 1 1\n")
    assert [part.file for part in source.parts(1)] == [str(tmp_path / "a")]
    assert source.smart_topics == [str(tmp_path / "b")]


def test_broken_smart_records_are_named_by_line_and_the_others_read(tmp_path: Path) -> None:
    docs = b".I 1\n.T\nfine\n.I 2\n.T\nok\n.A\nAm\xe9lie\n.I\n.T\nno id\n.I 4\n.T\nfine too\n"
    source = write(tmp_path, docs, SMART_QUERIES, "1 1 0 0\n")
    path = str(tmp_path / "a")
    assert passages(source) == [
        Passage("1", "fine"),
        Malformed(path, 8, "byte 3 is not UTF-8"),
        Malformed(path, 9, "the record has no id after .I"),
        Passage("4", "fine too"),
    ]


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"1 0 7 1\n", "qrels"),
        (b"1 0 7 0\n1 0 0 0\n", "qrels"),
        (b"1 0 7 1\nbroken\n1 0 8 1\n", "qrels"),
        (b"01 1410  0 0\n", "smart qrels"),
        (b"     1     28\t0\t0.000000\n", "smart qrels"),
        (b"1 Q0 7 1 0.5 run\n", ""),
        (b"one two three four\n", ""),
        (b"<html>", ""),
        (b"", ""),
    ],
)
def test_trec_and_smart_judgments_are_recognised_by_their_columns(head: bytes, kind: str) -> None:
    assert kind_of(head) == kind


@pytest.mark.parametrize(("missing", "what"), [("a", "documents"), ("b", "queries"), ("c", "judgments")])
def test_a_missing_kind_of_file_is_named(tmp_path: Path, missing: str, what: str) -> None:
    write(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(DatasetError, match=f"has no {what}: expected a file with"):
        Trec(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "documents", "queries", "judgments"), [("cacm", 3204, 64, 796), ("vaswani", 11_429, 93, 2083)]
)
def test_real_collections_are_read_completely(
    shared_data: Path, name: str, documents: int, queries: int, judgments: int
) -> None:
    source = Trec(str(shared_data / name))
    found = passages(source)
    ids = {row.passage_id for row in found if isinstance(row, Passage)}
    assert len(ids) == len(found) == documents
    query_ids = {row.query_id for row in source.queries() if isinstance(row, Query)}
    assert len(query_ids) == queries
    judged = [row for row in source.judgments() if isinstance(row, Judgment)]
    assert len(judged) == judgments
    assert {row.passage_id for row in judged} <= ids
    assert {row.query_id for row in judged} <= query_ids
