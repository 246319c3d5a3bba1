"""Files of queries that are to be ranked."""

import gzip
import re
from pathlib import Path

import pytest

from rayrank.core.errors import ConfigError
from rayrank.data.new_queries import read_new_queries

QUERIES = {"7": "who wrote hamlet", "q2": "où est le phare"}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("new.tsv", "7\twho wrote hamlet\n\nq2\toù est le phare\r\n"),
        ("new.jsonl", '{"_id": 7, "text": "who wrote hamlet"}\n{"_id": "q2", "text": "où est le phare"}\n'),
    ],
)
def test_tabs_and_json_lines_are_read_plain_and_compressed(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8", newline="")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    for file in (name, f"{name}.gz"):
        assert read_new_queries(str(tmp_path / file)) == QUERIES


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("new.tsv", "1\tone\ntwo\n", "line 2: 1 tab-separated fields, not query-id, text."),
        ("new.tsv", "1\t \n", "line 1: the query has no text."),
        ("new.tsv", "1\tone\n1\tagain\n", "the query id 1 occurs twice; keep one."),
        ("new.tsv", "", "has no queries: write"),
        ("new.jsonl", '{"_id": "1"}\n', "line 1: the field 'text' is missing."),
        ("new.jsonl", "1\tone\n", "line 1: not JSON"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_sentence(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=rf"--queries .*{name} .*{re.escape(told)}"):
        read_new_queries(str(tmp_path / name))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^--queries cannot be used: the file /nowhere/new.tsv does not exist"):
        read_new_queries("/nowhere/new.tsv")
