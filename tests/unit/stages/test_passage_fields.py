"""Fields of passages: numbers and dates from a row or its metadata, for exactly the passages of the corpus."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import DatasetError, ProblemsFound
from rayrank.core.overrides import build
from rayrank.data.sources.lines import BadRow
from rayrank.data.sources.passage_fields import number, passage_fields
from rayrank.stages.make import make

ROWS = [
    {"_id": "a", "text": "one", "price": 3, "metadata": {"date": "1970-01-03"}},
    {"_id": "b", "text": "two", "metadata": {"price": "2.5", "date": "1970-01-02T12:00:00+00:00"}},
    {"_id": "empty", "text": " ", "price": 7},
    {"_id": "a", "text": "again", "price": 99},
    {"_id": "c", "text": "three", "price": None, "metadata": None},
]


def made(folder: Path, rows: list[dict[str, Any]], *assignments: str) -> Artifact:
    data = folder / "data"
    (data / "qrels").mkdir(parents=True)
    (data / "corpus.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in ("queries.jsonl", "qrels/dev.tsv"):
        (data / name).write_text("")
    config: PipelineConfig = build("demo", assignments=[f"dataset.source=beir:{data}", *assignments])
    store = Store(str(folder / "storage"))
    corpus = store.artifact("corpus", config)
    for shard, names in enumerate((["c"], ["a", "b"])):
        corpus.write_table(f"passages/{shard}.parquet", pa.table({"passage_id": names}))
    store.finish(corpus, config, time.monotonic(), {"shards": ["passages/0.parquet", "passages/1.parquet"]})
    return make("passage_fields", config, store)


@pytest.mark.parametrize("part_bytes", ["64", "1000000"])
def test_each_passage_of_the_corpus_has_the_fields_of_its_first_row(tmp_path: Path, part_bytes: str) -> None:
    found = made(tmp_path, ROWS, "dataset.fields=[price, date]", f"dataset.part_bytes={part_bytes}")

    assert found.read_table("fields.parquet").to_pylist() == [
        {"passage_id": "c", "price": None, "date": None},
        {"passage_id": "a", "price": 3.0, "date": 2.0},
        {"passage_id": "b", "price": 2.5, "date": 1.5},
    ]
    assert found.manifest["num_values"] == {"price": 2, "date": 2}


def test_a_field_that_no_passage_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"^dataset\.fields=age cannot be used: no passage of beir:.* has a value of i"
    ):
        made(tmp_path, ROWS, "dataset.fields=[price, age]")


def test_a_value_that_is_no_number_stops_with_its_line_or_is_left_out(tmp_path: Path) -> None:
    rows = [*ROWS[:1], {"_id": "b", "text": "two", "price": "cheap"}]
    with pytest.raises(
        ProblemsFound, match=r"line 2: the field 'price' is 'cheap', which is neither a number nor a dat"
    ):
        made(tmp_path / "stop", rows, "dataset.fields=[price]")
    found = made(tmp_path / "skip", rows, "dataset.fields=[price]", "dataset.on_error=skip")
    assert found.read_table("fields.parquet")["price"].to_pylist() == [None, 3.0, None]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(True, 1.0), (7, 7.0), ("1e3", 1000.0), ("2020", 2020.0), ("1970-01-02", 1.0), ("", None), (None, None)],
)
def test_numbers_and_dates_are_read(value: object, wanted: float | None) -> None:
    assert number("field", value) == wanted


@pytest.mark.parametrize("value", ["cheap", float("nan"), "inf", 10**400, [1], {"a": 1}, "2024-13-01"])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(BadRow, match=r"^the field 'price' is .*, which is neither a number nor a date"):
        number("price", value)


def test_a_row_counts_before_its_metadata() -> None:
    assert passage_fields({"_id": "a", "price": 1, "metadata": {"price": 2, "age": 3}}, ["price", "age"]).values == (
        1,
        3,
    )
