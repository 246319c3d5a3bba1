"""Files of query types by query id, for any dataset: `query_id<TAB>type` lines, .csv, or .jsonl."""

import csv

from rayrank.core.errors import ConfigError
from rayrank.core.records import Malformed
from rayrank.data.problems import Problems
from rayrank.data.sources.fields import id_field, json_object, text_field, usable_id
from rayrank.data.sources.lines import BadRow, file_format, rows
from rayrank.data.sources.source import Part

HEADERS = (["query_id", "query_type"], ["query_id", "type"])


def read_types(file: str, problems: Problems) -> dict[str, str]:
    """Return the types of a file's queries in lower case, by query id; without a file, none."""
    types: dict[str, str] = {}
    if not file:
        return types
    parse = _of_json if file_format(file) == "jsonl" else _of_csv if file_format(file) == "csv" else _of_tabs
    for row in rows(Part(file), parse):
        if isinstance(row, Malformed):
            problems.add_malformed(row)
            continue
        query_id, query_type = row
        if (other := types.setdefault(query_id, query_type)) != query_type:
            raise ConfigError(
                f"dataset.types_file={file} gives the query {query_id} two types, {other} and {query_type}: keep one "
                f"of them."
            )
    if not types:
        raise ConfigError(
            f"dataset.types_file={file} has no query types: name a file of `query_id<TAB>type` lines, or leave it "
            f"empty."
        )
    return types


def _of_tabs(line: str) -> tuple[str, str] | None:
    return _typed(line.split("\t"), "tab-separated")


def _of_csv(line: str) -> tuple[str, str] | None:
    try:
        (fields,) = csv.reader([line], skipinitialspace=True, strict=True)
    except csv.Error as error:
        raise BadRow(f"not CSV: {error}") from None
    return _typed(fields, "comma-separated")


def _of_json(line: str) -> tuple[str, str] | None:
    row = json_object(line)
    query_id = id_field(row, "_id" if "query_id" not in row and "_id" in row else "query_id")
    return query_id, _usable(text_field(row, "query_type"))


def _typed(fields: list[str], how: str) -> tuple[str, str] | None:
    fields = [field.strip() for field in fields]
    if len(fields) != 2:
        raise BadRow(f"{len(fields)} {how} fields, not query_id, query_type")
    if [field.lower() for field in fields] in HEADERS:
        return None
    return usable_id(fields[0], "query id"), _usable(fields[1])


def _usable(query_type: str) -> str:
    query_type = query_type.strip().lower()
    if not query_type:
        raise BadRow("the query type is empty")
    return query_type
