"""Natural language inference as judgments: MNLI's files, and others of their form such as SNLI's.

A file has one JSON object per line (`.jsonl`), or tab-separated fields under a line of their names.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.fields import id_field, json_object, passage_of_text, text_field
from rayrank.data.sources.lines import BadRow, file_format, lines, rows, split_bytes
from rayrank.data.sources.locate import listed, named_split
from rayrank.data.sources.source import Part, Source

GRADES = {"entailment": 1, "neutral": 0, "contradiction": 0}
NO_LABEL = "-"
"""The gold label of a pair whose annotators did not agree."""
NEEDED = ("gold_label", "sentence1", "sentence2", "pairID")


class _File(NamedTuple):
    """One file: the split that its name mentions, or else nothing, and the names of its columns if it has some."""

    path: str
    named_split: str
    columns: list[str]

    @property
    def split(self) -> str:
        return self.named_split or "train"


class _Row(NamedTuple):
    """A hypothesis, its premise, and the grade of the premise for it; no grade if the pair has no gold label."""

    query: Query
    passage: Passage
    grade: int | None


class Mnli(Source):
    """Files of premises and hypotheses, one or several separated by commas.

    A hypothesis is a query and its premise the passage: relevant if it entails the hypothesis, judged not relevant
    if not. Pairs without a gold label are left out. Hypotheses of one premise are held out together. A broken row is
    reported once, by `passages`.
    """

    repeats_passages = True

    def __init__(self, paths: str) -> None:
        self._files = {path: _opened(path) for path in listed(paths)}

    def files(self) -> list[str]:
        return list(self._files)

    def notes(self) -> list[str]:
        unnamed = [file.path for file in self._files.values() if not file.named_split]
        found = [f"{path} is read as the split train: its name mentions no split" for path in unnamed]
        if self._num_unlabelled:
            found.append(f"{self._num_unlabelled:,} pairs without a gold label are left out")
        return found

    @cached_property
    def _num_unlabelled(self) -> int:
        return sum(isinstance(row, _Row) and row.grade is None for row in self._all())

    def parts(self, part_bytes: int) -> list[Part]:
        return [part for path in self._files for part in split_bytes(path, part_bytes)]

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        for row in _rows(part, self._files[part.file]):
            if isinstance(row, Malformed):
                yield row
            elif row.grade is not None:
                yield row.passage

    def queries(self) -> Iterator[Query | Malformed]:
        return (row.query for row in self._labelled())

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for row in self._labelled():
            assert row.grade is not None
            yield Judgment(row.query.query_id, row.passage.passage_id, row.grade, row.query.split)

    def _labelled(self) -> Iterator[_Row]:
        return (row for row in self._all() if isinstance(row, _Row) and row.grade is not None)

    def _all(self) -> Iterator[_Row | Malformed]:
        for file in self._files.values():
            yield from _rows(Part(file.path), file)


def _opened(path: str) -> _File:
    split = named_split(PurePosixPath(path).name, "")
    if file_format(path) == "jsonl":
        return _File(path, split, [])
    first = next(iter(lines(Part(path))), None)
    columns = [] if first is None else _fields(first.data.decode("utf-8", "replace"))
    if missing := [name for name in NEEDED if name not in columns]:
        raise DatasetError(
            f"The file {path} has no column {missing[0]} in its first line: name a file of MNLI with gold labels, "
            f"tab-separated or as .jsonl."
        )
    return _File(path, split, columns)


def _rows(part: Part, file: _File) -> Iterator[_Row | Malformed]:
    return rows(part, lambda line: _row(line, file))


def _row(line: str, file: _File) -> _Row | None:
    if not file.columns:
        return _pair(json_object(line), file.split)
    fields = _fields(line)
    if fields == file.columns:
        return None
    # The last columns are the labels of single annotators, which not all rows have.
    least = 1 + max(map(file.columns.index, NEEDED))
    if not least <= len(fields) <= len(file.columns):
        raise BadRow(f"{len(fields)} tab-separated fields, not {len(file.columns)} as in the first line")
    return _pair(dict(zip(file.columns, fields, strict=False)), file.split)


def _pair(row: dict[str, Any], split: str) -> _Row:
    label = text_field(row, "gold_label")
    if label != NO_LABEL and label not in GRADES:
        raise BadRow(f"the gold label {label!r} is not {', '.join(GRADES)} or {NO_LABEL}")
    passage = passage_of_text(text_field(row, "sentence1"))
    query = Query(id_field(row, "pairID"), text_field(row, "sentence2"), split, group=passage.passage_id)
    return _Row(query, passage, GRADES.get(label))


def _fields(line: str) -> list[str]:
    return line.split("\t")
