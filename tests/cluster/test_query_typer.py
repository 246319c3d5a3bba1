"""The classifier of query types on real questions, from a file of labels to the types of a corpus."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig, QueryTypesConfig, ResourcesConfig, TyperConfig
from rayrank.core.records import QUERIES
from rayrank.data.labelled_questions import labels_digest, read_labelled
from rayrank.jobs.train_query_types import measure
from rayrank.stages import query_typer, query_types


@pytest.fixture
def config(shared_data: Path, tmp_path: Path) -> PipelineConfig:
    """A quarter of TREC's training questions: enough to see that it learns, and soon done."""
    rows = read_labelled(str(shared_data / "trec-question-types" / "train_5500.label.gz"), "typer.labels")[::4]
    file = tmp_path / "labels.tsv"
    file.write_text("".join(f"{row.query_type}\t{row.text}\n" for row in rows), encoding="utf-8")
    return PipelineConfig(
        typer=TyperConfig(epochs=2, lr=2e-4, labels=str(file), fingerprint=labels_digest(str(file), "typer.labels")),
        query_types=QueryTypesConfig(predict="trained"),
        resources=ResourcesConfig(train_cpus=1),
    )


def store_queries(store: Store, config: PipelineConfig) -> None:
    rows = [
        ("q1", "train", "side effects", "where does aspirin work"),
        ("q2", "train", "", "where is the lighthouse"),
        ("q3", "dev", "", "who wrote hamlet"),
    ]
    columns = [*zip(*rows, strict=True), [[] for _ in rows]]
    corpus = store.artifact("corpus", config)
    corpus.write_table("queries.parquet", pa.table(dict(zip(QUERIES.names, columns, strict=True)), schema=QUERIES))
    store.finish(corpus, config, time.monotonic(), {})


@pytest.mark.slow
def test_the_classifier_types_held_out_questions_and_a_corpus(
    ray_cluster: None, config: PipelineConfig, shared_data: Path, tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "store"))
    typer = query_typer.run(config, store)
    manifest = typer.manifest

    assert manifest["num_questions"] == 1363
    assert typer.read_json("types.json") == sorted(manifest["types"])
    assert manifest["dev"] >= 0.82
    figures = measure(
        read_labelled(str(shared_data / "trec-question-types" / "TREC_10.label"), "--test"), config, store
    )
    assert figures["num_questions"] == 500
    assert figures["trained"]["mean"] >= 0.9
    assert figures["trained"]["low"] < figures["trained"]["mean"] < figures["trained"]["high"]
    assert figures["rules"]["mean"] >= 0.9

    store_queries(store, config)
    typed = query_types.run(config, store)
    assert typed.read_table("query_types.parquet").to_pydict() == {
        "query_id": ["q1", "q2", "q3"],
        "query_type": ["side effects", "location", "person"],
    }
    assert typed.manifest["inputs"]["query_typer"] == typer.key
