"""Files of queries that are to be ranked: `query_id<TAB>text` lines, or .jsonl with `_id` and `text`."""

from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.records import Malformed
from rayrank.data.sources.fields import id_field, json_object, tab_fields, text_field
from rayrank.data.sources.lines import BadRow, file_format, rows
from rayrank.data.sources.source import Part


def read_new_queries(file: str) -> dict[str, str]:
    """Return the texts of a file's queries by id, in the file's order; a bad line raises ConfigError."""
    try:
        return _read(file)
    except DatasetError as error:
        raise ConfigError(f"--queries cannot be used: {str(error).replace('The', 'the', 1)}") from None


def _read(file: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    for row in rows(Part(file), _of_json if file_format(file) == "jsonl" else _of_tabs):
        if isinstance(row, Malformed):
            raise ConfigError(f"--queries {file} cannot be used: line {row.line}: {row.reason}.")
        query_id, text = row
        if query_id in texts:
            raise ConfigError(f"--queries {file} cannot be used: the query id {query_id} occurs twice; keep one.")
        texts[query_id] = text
    if not texts:
        raise ConfigError(f"--queries {file} has no queries: write `query_id<TAB>text` lines, or .jsonl.")
    return texts


def _of_tabs(line: str) -> tuple[str, str]:
    query_id, text = tab_fields(line, "query-id", "text")
    return query_id, _not_empty(text)


def _of_json(line: str) -> tuple[str, str]:
    row = json_object(line)
    return id_field(row, "_id"), _not_empty(text_field(row, "text"))


def _not_empty(text: str) -> str:
    if not text.strip():
        raise BadRow("the query has no text")
    return text
