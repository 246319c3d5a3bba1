"""TREC and SMART folders: documents, topics and judgments, recognised by the content of the files."""

import re
from collections.abc import Iterator
from typing import NamedTuple

import fsspec

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources import smart, trec_sgml
from rayrank.data.sources.fields import trec_judgment
from rayrank.data.sources.lines import BYTE_ORDER_MARK, opened, rows
from rayrank.data.sources.locate import find_all
from rayrank.data.sources.source import Part, Source

HEAD = 1 << 16
SPLIT = "test"

_MARKED_UP = re.compile(rb"<(doc|top)(?:\s[^>]*)?>", re.IGNORECASE)
_SMART = re.compile(rb"\.I\s+\S")
_SMART_TITLE = re.compile(rb"^\.T\s*$", re.MULTILINE)
_NUMBER = re.compile(rb"-?\d+(\.\d+)?")
_ZERO = re.compile(rb"0+(\.0+)?")


class _File(NamedTuple):
    """A file and the kind that its first bytes show; the kind is empty if none is recognised."""

    path: str
    kind: str


class Trec(Source):
    """A folder of TREC files (<DOC>, <top>, qrels) or SMART files (.I) of any name or .gz, all in the split test."""

    def __init__(self, folder: str) -> None:
        found = [_File(path, kind_of(_head(path))) for path in _everything(folder)]
        self.marked_up = _of(found, "documents")
        self.smart = _of(found, "smart documents")
        untitled = _of(found, "smart")
        if untitled and not self.marked_up and not self.smart:
            # Some SMART collections have no titles; the largest file has the documents then.
            self.smart = [max(untitled, key=_size)]
        self.marked_up_topics = _of(found, "topics")
        self.smart_topics = [path for path in untitled if path not in self.smart]
        self.qrels = _of(found, "qrels")
        self.smart_qrels = _of(found, "smart qrels")
        for what, paths, sign in (
            ("documents", self.marked_up + self.smart, "<DOC> or SMART's .I and .T"),
            ("queries", self.marked_up_topics + self.smart_topics, "<top> or SMART's .I and .W"),
            ("judgments", self.qrels + self.smart_qrels, "`query-id 0 passage-id relevance` rows"),
        ):
            if not paths:
                raise DatasetError(f"The dataset folder {folder} has no {what}: expected a file with {sign}.")

        self._ignored = [file.path for file in found if not file.kind]

    def notes(self) -> list[str]:
        return [f"{path} is not read: neither documents, topics nor qrels" for path in self._ignored]

    def files(self) -> list[str]:
        documents, queries = self.marked_up + self.smart, self.marked_up_topics + self.smart_topics
        return [*documents, *queries, *self.qrels, *self.smart_qrels]

    def parts(self, part_bytes: int) -> list[Part]:
        return [Part(path) for path in self.marked_up + self.smart]

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        if part.file in self.marked_up:
            return trec_sgml.documents(part.file)
        return smart.documents(part.file)

    def queries(self) -> Iterator[Query | Malformed]:
        for path in self.marked_up_topics:
            yield from trec_sgml.topics(path, SPLIT)
        for path in self.smart_topics:
            yield from smart.topics(path, SPLIT)

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for path in self.qrels:
            yield from rows(Part(path), lambda line: trec_judgment(line, SPLIT))
        for path in self.smart_qrels:
            yield from rows(Part(path), lambda line: smart.judgment(line, SPLIT))


def kind_of(head: bytes) -> str:
    """Return the kind of a file, recognised by its first bytes, or an empty text."""
    head = head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if head.startswith(b"<"):
        mark = _MARKED_UP.search(head)
        return "" if not mark else "documents" if mark[1].lower() == b"doc" else "topics"
    if _SMART.match(head):
        return "smart documents" if _SMART_TITLE.search(head) else "smart"
    fields = [line.split() for line in head.splitlines()]
    filled = [row for row in fields if row]
    judged = [row for row in filled if len(row) == 4 and _NUMBER.fullmatch(row[3])]
    # More than half of the rows must look like judgments: some may be broken, and ordinary text has hardly any.
    if len(judged) * 2 <= len(filled):
        return ""
    zeros = all(_ZERO.fullmatch(row[2]) and _ZERO.fullmatch(row[3]) for row in judged)
    return "smart qrels" if zeros and any(row[1] != b"0" for row in judged) else "qrels"


def _everything(folder: str) -> list[str]:
    filesystem, root = fsspec.url_to_fs(folder)
    paths = find_all(folder, "*", "**/*")
    return [path for path in paths if filesystem.isfile(path) and "/." not in path.partition(root)[2]]


def _head(path: str) -> bytes:
    with opened(path) as stream:
        head = stream.read(HEAD)
    # Without the last line, which may be cut off.
    return head if len(head) < HEAD else head[: head.rfind(b"\n") + 1] or head


def _of(found: list[_File], kind: str) -> list[str]:
    return [file.path for file in found if file.kind == kind]


def _size(path: str) -> int:
    filesystem, name = fsspec.url_to_fs(path)
    return int(filesystem.size(name))
