"""The rules that predict query types read English; in other languages a query has its label or the default type."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.overrides import build
from rayrank.core.records import QUERIES
from rayrank.stages import query_types

ROWS = [("q1", "train", "Ort", "wo liegt Kairo"), ("q2", "train", "", "who in Kairo"), ("q3", "dev", "", "when")]


def typed(folder: Path, *assignments: str, rows: list[tuple[str, str, str, str]] = ROWS) -> Artifact:
    config, store = build("demo", assignments=assignments), Store(str(folder))
    columns = [*zip(*rows, strict=True), [[] for _ in rows]]
    corpus = store.artifact("corpus", config)
    corpus.write_table("queries.parquet", pa.table(dict(zip(QUERIES.names, columns, strict=True)), schema=QUERIES))
    store.finish(corpus, config, time.monotonic(), {})
    return query_types.run(config, store)


def types(artifact: Artifact) -> list[str]:
    found: list[str] = artifact.read_table("query_types.parquet")["query_type"].to_pylist()
    return found


@pytest.mark.parametrize("code", ["de", "zh", "none"])
def test_queries_without_a_label_get_the_default_type_and_the_summary_says_so(tmp_path: Path, code: str) -> None:
    artifact = typed(tmp_path, f"index.language={code}")

    assert types(artifact) == ["Ort", "description", "description"]
    (finding,) = artifact.manifest["findings"]
    assert "the rules that predict query types read English" in finding
    assert f"index.language={code}, so 2 queries got the type description" in finding


def test_english_is_read_by_the_rules_and_nothing_is_said(tmp_path: Path) -> None:
    artifact = typed(tmp_path)

    assert types(artifact) == ["Ort", "person", "numeric"]
    assert "findings" not in artifact.manifest


def test_nothing_is_said_if_every_query_has_a_label(tmp_path: Path) -> None:
    artifact = typed(tmp_path, "index.language=de", rows=ROWS[:1])

    assert types(artifact) == ["Ort"]
    assert "findings" not in artifact.manifest
