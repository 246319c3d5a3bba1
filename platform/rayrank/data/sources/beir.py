"""BEIR folders: corpus.jsonl, queries.jsonl (each may be .gz) and qrels/SPLIT.tsv, also with TREC's columns."""

from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from rayrank.core.config import GROUP_FIELD, PASSAGE_TEMPLATE, TYPE_FIELD
from rayrank.core.errors import DatasetError
from rayrank.core.records import Judgment, Malformed, Passage, PassageFields, Query
from rayrank.data.sources.fields import id_field, json_object, relevance, text_field, trec_judgment
from rayrank.data.sources.lines import BadRow, rows, split_bytes
from rayrank.data.sources.locate import find_all, find_one, usual_split
from rayrank.data.sources.passage_fields import passage_fields
from rayrank.data.sources.passage_template import PassageTemplate
from rayrank.data.sources.source import Part, Source


class Beir(Source):
    """A BEIR folder; a passage is its title and its text, or what a template makes of its row.

    A query's `metadata` may name its type and its group.
    """

    def __init__(
        self,
        folder: str,
        type_field: str = TYPE_FIELD,
        group_field: str = GROUP_FIELD,
        passage_template: str = PASSAGE_TEMPLATE,
    ) -> None:
        self._type_field, self._group_field = type_field, group_field
        self._template = None if passage_template == PASSAGE_TEMPLATE else PassageTemplate(passage_template)
        self.corpus = find_one(folder, "corpus.jsonl", "corpus.jsonl.gz")
        self.query_file = find_one(folder, "queries.jsonl", "queries.jsonl.gz")
        self.qrels = find_all(folder, "qrels/*.tsv", what="judgments")

    def files(self) -> list[str]:
        return [self.corpus, self.query_file, *self.qrels]

    def parts(self, part_bytes: int) -> list[Part]:
        if self._template:
            # Here and not in `passages`, because no worker reads the whole corpus.
            self._template.check(rows(Part(self.corpus), json_object), self.corpus)
        return split_bytes(self.corpus, part_bytes)

    def passages(self, part: Part) -> Iterator[Passage | Malformed]:
        if (template := self._template) is None:
            return rows(part, _passage)
        return rows(part, lambda line: _filled(json_object(line), template))

    def fields(self, part: Part, names: Sequence[str]) -> Iterator[PassageFields | Malformed]:
        return rows(part, lambda line: passage_fields(json_object(line), names))

    def queries(self) -> Iterator[Query | Malformed]:
        typed = grouped = False
        for query in rows(Part(self.query_file), self._query):
            typed |= isinstance(query, Query) and query.query_type != ""
            grouped |= isinstance(query, Query) and query.group != ""
            yield query
        # A missing field is an error only if the user has named it.
        for key, field, usual, found in (
            ("type_field", self._type_field, TYPE_FIELD, typed),
            ("group_field", self._group_field, GROUP_FIELD, grouped),
        ):
            if not found and field != usual:
                raise DatasetError(
                    f"dataset.{key}={field} is in the metadata of no query of {self.query_file}: name a field that is, "
                    f"or leave it out."
                )

    def judgments(self) -> Iterator[Judgment | Malformed]:
        for path in self.qrels:
            split = usual_split(PurePosixPath(path).stem)
            yield from rows(Part(path), lambda line, split=split: _judgment(line, split))  # type: ignore[misc]

    def _query(self, line: str) -> Query:
        row = json_object(line)
        metadata = row.get("metadata") or {}
        if not isinstance(metadata, dict):
            raise BadRow("the field 'metadata' is not an object")
        query_type, group = (
            text_field(metadata, field) if metadata.get(field) is not None else ""
            for field in (self._type_field, self._group_field)
        )
        label = query_type.strip().lower()
        return Query(id_field(row, "_id"), text_field(row, "text"), query_type=label, group=group)


def _passage(line: str) -> Passage:
    row = json_object(line)
    title = "" if row.get("title") is None else text_field(row, "title")
    text = text_field(row, "text")
    return Passage(id_field(row, "_id"), f"{title}\n{text}" if title else text)


def _filled(row: dict[str, Any], template: PassageTemplate) -> Passage:
    return Passage(id_field(row, "_id"), template(row))


def _judgment(line: str, split: str) -> Judgment | None:
    if line.startswith("query-id") and line.rstrip().endswith("score"):
        return None
    fields = line.split("\t")
    if len(fields) != 3 and len(line.split()) == 4:
        return trec_judgment(line, split)
    if len(fields) != 3:
        raise BadRow(f"{len(fields)} tab-separated fields, not query-id, corpus-id, score")
    return Judgment(fields[0], fields[1], relevance(fields[2]), split)
