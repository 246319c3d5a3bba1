"""BEIR folders: corpus.jsonl, queries.jsonl (each may be .gz) and qrels/SPLIT.tsv."""

from collections.abc import Iterator
from pathlib import PurePosixPath

from rayrank.core.config import TYPE_FIELD
from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, Query
from rayrank.data.sources.fields import id_field, json_object, relevance, text_field
from rayrank.data.sources.lines import BadRow, rows, split_bytes
from rayrank.data.sources.locate import find_all, find_one
from rayrank.data.sources.source import Part, Source


class Beir(Source):
    """A BEIR folder; a passage is its title and its text, and a field of a query's `metadata` is the query type."""

    def __init__(self, folder: str, type_field: str = TYPE_FIELD) -> None:
        self._type_field = type_field
        self.corpus = find_one(folder, "corpus.jsonl", "corpus.jsonl.gz")
        self.query_file = find_one(folder, "queries.jsonl", "queries.jsonl.gz")
        self.qrels = find_all(folder, "qrels/*.tsv", what="judgments")

    def files(self) -> list[str]:
        return [self.corpus, self.query_file, *self.qrels]

    def parts(self, part_bytes: int) -> list[Part]:
        return split_bytes(self.corpus, part_bytes)

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        return rows(part, _passage)

    def queries(self) -> Iterator[Query | Malformed]:
        typed = False
        for query in rows(Part(self.query_file), self._query):
            typed |= isinstance(query, Query) and query.query_type != ""
            yield query
        # Without types there is no error, unless the user has named the field that should hold them.
        if not typed and self._type_field != TYPE_FIELD:
            raise DatasetError(
                f"dataset.type_field={self._type_field} is in the metadata of no query of {self.query_file}: name a "
                f"field that is, or leave it out."
            )

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for path in self.qrels:
            split = PurePosixPath(path).stem
            yield from rows(Part(path), lambda line, split=split: _judgment(line, split))  # type: ignore[misc]

    def _query(self, line: str) -> Query:
        row = json_object(line)
        metadata = row.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise BadRow("the field 'metadata' is not an object")
        has_type = metadata.get(self._type_field) is not None
        query_type = text_field(metadata, self._type_field) if has_type else ""
        return Query(id_field(row, "_id"), text_field(row, "text"), query_type=query_type)


def _passage(line: str) -> Passage:
    row = json_object(line)
    title, text = text_field(row, "title", ""), text_field(row, "text")
    return Passage(id_field(row, "_id"), f"{title}\n{text}" if title else text)


def _judgment(line: str, split: str) -> Judgment | None:
    fields = line.split("\t")
    if len(fields) != 3:
        raise BadRow(f"{len(fields)} tab-separated fields, not query-id, corpus-id, score")
    if fields == ["query-id", "corpus-id", "score"]:
        return None
    return Judgment(fields[0], fields[1], relevance(fields[2]), split)
