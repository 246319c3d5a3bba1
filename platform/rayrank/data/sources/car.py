"""TREC-CAR folders: paragraphs and outlines in CBOR, judgments in *.qrels."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, Any, ClassVar

import fsspec

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.fields import trec_judgment
from rayrank.data.sources.lines import opened, rows
from rayrank.data.sources.locate import find_all
from rayrank.data.sources.source import Part, Source

LARGEST = 1 << 26
"""Bytes: no text is longer, so a larger length field means that the file is damaged."""

PARAGRAPHS = ("**/*paragraphs*.cbor", "**/*paragraphcorpus*.cbor", "**/*.cbor.paragraphs")
OUTLINES = ("**/*outlines*.cbor", "**/*.cbor.outlines")


class Car(Source):
    """A TREC-CAR folder; a query is a page's title and the headings down to one of its sections.

    If there are several kinds of judgments, the hierarchical ones are read, which name a section by its whole path.
    The paragraphs of a benchmark are in the paragraph corpus as well, so passages repeat.
    """

    repeats_passages: ClassVar[bool] = True

    def __init__(self, folder: str) -> None:
        self.root = fsspec.url_to_fs(folder)[1].rstrip("/")
        self.paragraphs = find_all(folder, *PARAGRAPHS, what="paragraphs")
        self.outlines = find_all(folder, *OUTLINES, what="outlines")
        qrels = find_all(folder, "**/*.qrels", what="judgments")
        self.qrels = [path for path in qrels if path.endswith("hierarchical.qrels")] or qrels

    def files(self) -> list[str]:
        return [*self.paragraphs, *self.outlines, *self.qrels]

    def identity(self) -> str:
        # The names of folders may decide the splits, and a digest of the files' contents does not cover names.
        return " ".join(self._split(path) for path in [*self.outlines, *self.qrels])

    def parts(self, part_bytes: int) -> list[Part]:
        return [Part(path) for path in self.paragraphs]

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        from trec_car.read_data import iter_paragraphs

        for paragraph in _records(part.file, iter_paragraphs):
            yield Passage(paragraph.para_id, paragraph.get_text())

    def queries(self) -> Iterator[Query | Malformed]:
        from trec_car.read_data import iter_annotations

        for path in self.outlines:
            split = self._split(path)
            for page in _records(path, iter_annotations):
                for headings in page.flat_headings_list():
                    query_id = "/".join([page.page_id, *(section.headingId for section in headings)])
                    text = " ".join([page.page_name, *(section.heading for section in headings)])
                    yield Query(query_id, text, split)

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for path in self.qrels:
            split = self._split(path)
            yield from rows(Part(path), lambda line, split=split: trec_judgment(line, split))  # type: ignore[misc]

    def _split(self, path: str) -> str:
        """Return the split named by the file, or else by the nearest folder around it in the dataset."""
        inside = PurePosixPath(self.root).name + path.partition(self.root)[2]
        for name in reversed(inside.split("/")):
            if "test" in name:
                return "test"
            if re.search(r"dev|fold-?4", name):
                return "dev"
            if "train" in name:
                return "train"
        return "train"


class _Guarded:
    """A file that raises an error if it ends in the middle of a record, where the C decoder would loop forever."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.buffer = io.BufferedReader(stream, 1 << 20)  # type: ignore[type-var]
        self.has_header = b"CAR" in self.peek(8)

    def peek(self, size: int) -> bytes:
        try:
            data = self.buffer.peek(size)[:size]
        except EOFError as error:
            # The parser would take an EOFError as the end of the records.
            raise ValueError(str(error)) from None
        self.at_end = not data
        return data

    def read(self, size: int) -> bytes:
        if self.at_end and not self.has_header:
            raise EOFError
        try:
            data = self.buffer.read(size) if size < LARGEST else b""
        except EOFError as error:
            raise ValueError(str(error)) from None
        if len(data) < size:
            raise ValueError("it ends, or a length is wrong, in the middle of a record")
        return data


def _records(path: str, read: Callable[[_Guarded], Iterator[Any]]) -> Iterator[Any]:
    number = 0
    with opened(path) as stream:
        try:
            for record in read(_Guarded(stream)):
                number += 1
                yield record
        # On damaged bytes the decoder and the parser raise anything from IndexError to SystemError.
        except Exception as error:
            raise DatasetError(
                f"The file {path} is damaged, or not what its name says, after {number} records "
                f"({str(error) or type(error).__name__}): fetch it again."
            ) from None
