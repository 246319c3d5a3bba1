"""The documents that doc2query indexes."""

from pathlib import Path

import pyarrow as pa

from rayrank.core.artifacts import Artifact
from rayrank.core.records import PASSAGES as PASSAGE_SCHEMA
from rayrank.stages.doc2query_documents import PASSAGES, _examples, _items, with_queries


def test_queries_come_after_the_original_text() -> None:
    assert with_queries("The tower rises 40 metres.", ["how tall is it", "tower height"]) == (
        "The tower rises 40 metres.\nhow tall is it\ntower height"
    )
    assert with_queries("Alone.", []) == "Alone."


def test_every_slice_of_a_shard_is_one_file_with_its_own_number(tmp_path: Path) -> None:
    corpus = Artifact(str(tmp_path), "corpus", "key")
    counts = {"passages/part-00000.parquet": 2 * PASSAGES + 1, "passages/part-00001.parquet": 3}
    for name, count in counts.items():
        columns = [[f"{name}{row}" for row in range(count)], ["text"] * count, [[]] * count]
        corpus.write_table(name, pa.table(columns, schema=PASSAGE_SCHEMA))
    corpus.write_json("manifest.json", {"shards": list(counts)})

    items = _items(corpus)

    assert [(item["shard"][-6 - 8 :], item["start"]) for item in items] == [
        ("-00000.parquet", 0), ("-00000.parquet", PASSAGES), ("-00000.parquet", 2 * PASSAGES), ("-00001.parquet", 0),
    ]  # fmt: skip
    assert [item["number"] for item in items] == [0, 1, 2, 3]
    assert len({item["name"] for item in items}) == 4


def test_examples_show_the_first_queries_of_passages_far_apart() -> None:
    queries = [[f"q{row}{letter}" for letter in "abcd"] for row in range(9)]
    queries[8] = []

    assert _examples([f"p{row}" for row in range(9)], queries) == [
        "doc2query wrote for p0: q0a; q0b; q0c",
        "doc2query wrote for p4: q4a; q4b; q4c",
        "doc2query wrote for p8: nothing",
    ]
    assert _examples(["p"], [["one"]]) == ["doc2query wrote for p: one"]
