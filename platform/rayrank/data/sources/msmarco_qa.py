"""MS MARCO question answering files, v1.1 and v2.1: one JSON array, or one JSON object per line."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, ClassVar, NamedTuple

import fsspec

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.fields import id_field, json_object, passage_of_text, text_field
from rayrank.data.sources.json_array import items
from rayrank.data.sources.lines import BYTE_ORDER_MARK, BadRow, opened, rows, split_bytes
from rayrank.data.sources.locate import find_all, listed, named_split
from rayrank.data.sources.source import Part, Source

COLUMNS = re.compile(rb'\{\s*"\w+"\s*:\s*\{\s*"\d+"\s*:')
"""Beginning of the official v2.1 download: one object of columns, which cannot be read as a stream."""


SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
"""Endings of the files that are read from a folder."""


class _File(NamedTuple):
    """One file: the split that its name mentions (or else nothing), and whether it is one JSON array."""

    path: str
    named_split: str
    is_array: bool

    @property
    def split(self) -> str:
        return self.named_split or "test"


class _Row(NamedTuple):
    """A query, its passages, and the ids of the passages that were selected for the answer."""

    query: Query
    passages: list[Passage]
    selected: list[str]


class MsMarcoQa(Source):
    """MS MARCO QA files: one file, a folder of files, or several of either separated by commas.

    A passage's id is a digest of its text, so a passage of several queries or files repeats. The split of a file is
    the one that its name mentions, or else test. A broken row is reported once, by `passages`.
    """

    repeats_passages: ClassVar[bool] = True

    def __init__(self, paths: str) -> None:
        found = dict.fromkeys(file for path in listed(paths) for file in _found(path))
        self._files = {path: _opened(path) for path in found}

    def files(self) -> list[str]:
        return list(self._files)

    def notes(self) -> list[str]:
        unnamed = [file.path for file in self._files.values() if not file.named_split]
        return [f"{path} is read as the split test: its name mentions no split" for path in unnamed]

    def parts(self, part_bytes: int) -> list[Part]:
        return [
            part
            for file in self._files.values()
            for part in ([Part(file.path)] if file.is_array else split_bytes(file.path, part_bytes))
        ]

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        for row in _rows(part, self._files[part.file]):
            if isinstance(row, Malformed):
                yield row
            else:
                yield from row.passages

    def queries(self) -> Iterator[Query | Malformed]:
        for file in self._files.values():
            for row in _rows(Part(file.path), file):
                if isinstance(row, _Row):
                    yield row.query

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for file in self._files.values():
            for row in _rows(Part(file.path), file):
                if isinstance(row, _Row):
                    for passage_id in row.selected:
                        yield Judgment(row.query.query_id, passage_id, 1, file.split)


def _found(path: str) -> list[str]:
    """Return the files of a folder, or the path itself if it is no folder."""
    filesystem, root = fsspec.url_to_fs(path)
    if not filesystem.exists(root):
        raise DatasetError(f"The file or folder {path} does not exist: check the path after --dataset.")
    if not filesystem.isdir(root):
        return [path]
    files = find_all(path, *(f"[!.]*{suffix}" for suffix in SUFFIXES), what="MS MARCO QA files")
    names: dict[str, str] = {}
    for file in files:
        # The same content in another format, such as an unpacked or converted download.
        other = names.setdefault(re.sub(r"\.jsonl?(\.gz)?$", "", file), file)
        if other != file:
            raise DatasetError(f"The dataset folder {path} has {other} and {file}: keep one of them.")
    return files


def _opened(path: str) -> _File:
    with opened(path) as stream:
        head = stream.read(4096).removeprefix(BYTE_ORDER_MARK).lstrip()
    if COLUMNS.match(head):
        raise DatasetError(
            f"The file {path} holds columns, not rows: write it as one object a line first, with "
            f"pandas.read_json(file).to_json(new_file, orient='records', lines=True)."
        )
    return _File(path, named_split(PurePosixPath(path).name, ""), head.startswith(b"["))


def _rows(part: Part, file: _File) -> Iterator[_Row | Malformed]:
    if not file.is_array:
        yield from rows(part, lambda line: _row(json_object(line), file.split))
        return
    for item in items(part.file):
        try:
            yield _row(item.value, file.split)
        except BadRow as error:
            yield Malformed(part.file, item.line, str(error))


def _row(row: Any, split: str) -> _Row:
    if not isinstance(row, dict):
        raise BadRow(f"a JSON {type(row).__name__}, not an object")
    query = Query(
        id_field(row, "query_id"),
        text_field(row, "query"),
        split,
        text_field(row, "query_type", "").strip().lower(),
    )
    passages, selected = [], []
    for entry in _entries(row.get("passages")):
        passage = passage_of_text(text_field(entry, "passage_text"))
        passages.append(passage)
        if _is_selected(entry) and passage.passage_id not in selected:
            selected.append(passage.passage_id)
    return _Row(query, passages, selected)


def _entries(passages: Any) -> list[dict[str, Any]]:
    """Return one object per passage, from a list of objects or an object of lists."""
    if isinstance(passages, dict):
        texts, marks = passages.get("passage_text"), passages.get("is_selected")
        if not isinstance(texts, list) or not isinstance(marks, list | None):
            raise BadRow("the field 'passages' has no lists 'passage_text' and 'is_selected'")
        marks = marks or [0] * len(texts)
        if len(marks) != len(texts):
            raise BadRow(f"{len(texts)} passages in 'passage_text' but {len(marks)} in 'is_selected'")
        return [{"passage_text": text, "is_selected": mark} for text, mark in zip(texts, marks, strict=True)]
    if not isinstance(passages, list) or not all(isinstance(entry, dict) for entry in passages):
        raise BadRow("the field 'passages' is missing or is not a list of objects")
    return passages


def _is_selected(entry: dict[str, Any]) -> bool:
    mark = entry.get("is_selected") or 0
    if mark not in (0, 1, -1):
        raise BadRow(f"the field 'is_selected' is {mark!r}, not 0 or 1")
    return bool(mark == 1)
