"""The query types of a corpus: its own labels first, predictions for the rest."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig, QueryTypesConfig
from rayrank.core.errors import ConfigError, MissingArtifact
from rayrank.core.overrides import build
from rayrank.core.records import QUERIES
from rayrank.stages import query_types

ROWS = [
    ("q1", "train", "side effects", "where does aspirin work"),
    ("q2", "train", "", "where is the velmora lighthouse"),
    ("q3", "dev", "", "what does NASA stand for"),
    ("q4", "test", "person", "how tall is mount elbert"),
]


def corpus_store(folder: Path, config: PipelineConfig, rows: list[tuple[str, str, str, str]]) -> Store:
    store = Store(str(folder))
    columns = [*zip(*rows, strict=True), [[] for _ in rows]]
    artifact = store.artifact("corpus", config)
    artifact.write_table("queries.parquet", pa.table(dict(zip(QUERIES.names, columns, strict=True)), schema=QUERIES))
    store.finish(artifact, config, time.monotonic(), {})
    return store


def typed(folder: Path, rows: list[tuple[str, str, str, str]] = ROWS, **settings: object) -> Artifact:
    config = PipelineConfig(query_types=QueryTypesConfig.model_validate(settings))
    return query_types.run(config, corpus_store(folder, config, rows))


def types(artifact: Artifact) -> dict[str, str]:
    table = artifact.read_table("query_types.parquet")
    assert table.column_names == ["query_id", "query_type"]
    return dict(zip(*table.to_pydict().values(), strict=True))


def test_labels_come_first_and_the_rules_answer_where_there_is_none(tmp_path: Path) -> None:
    artifact = typed(tmp_path)

    assert types(artifact) == {"q1": "side effects", "q2": "location", "q3": "description", "q4": "person"}
    manifest = artifact.manifest
    assert (manifest["num_queries"], manifest["num_labelled"], manifest["num_predicted"]) == (4, 2, 2)
    assert manifest["types"] == {"description": 1, "location": 1, "person": 1, "side effects": 1}
    assert manifest["splits"] == {
        "dev": {"description": 1},
        "test": {"person": 1},
        "train": {"location": 1, "side effects": 1},
    }


def test_labels_can_be_ignored(tmp_path: Path) -> None:
    artifact = typed(tmp_path, ignore_labels=True)

    assert types(artifact) == {"q1": "location", "q2": "location", "q3": "description", "q4": "numeric"}
    assert artifact.manifest["num_predicted"] == 4


def test_abbreviations_are_a_separate_type_if_configured(tmp_path: Path) -> None:
    assert types(typed(tmp_path, abbreviation=True))["q3"] == "abbreviation"


@pytest.mark.parametrize("ignore_labels", [False, True])
def test_a_corpus_with_labels_only_or_with_none_is_typed_too(tmp_path: Path, ignore_labels: bool) -> None:
    labelled = [row for row in ROWS if row[2]]
    bare = [(row[0], row[1], "", row[3]) for row in ROWS]

    assert len(types(typed(tmp_path / "a", labelled, ignore_labels=ignore_labels))) == 2
    assert types(typed(tmp_path / "b", bare, ignore_labels=ignore_labels))["q4"] == "numeric"


def test_a_finished_artifact_is_reused(tmp_path: Path) -> None:
    first = typed(tmp_path)
    made = first.manifest["created"], first.manifest["seconds"]
    again = typed(tmp_path)

    assert again == first
    assert (again.manifest["created"], again.manifest["seconds"]) == made


def test_a_missing_classifier_is_an_error_that_names_its_job(tmp_path: Path) -> None:
    with pytest.raises(MissingArtifact, match=r"The query_typer artifact .* first run `rayrank train-query-types`"):
        typed(tmp_path, predict="trained")


def test_training_a_classifier_without_labelled_questions_is_one_sentence(tmp_path: Path) -> None:
    from rayrank.stages import query_typer

    config = PipelineConfig()
    store = corpus_store(tmp_path, config, [("q1", "train", "", "who"), ("q2", "dev", "person", "who")])
    with pytest.raises(ConfigError, match=r"typer\.labels is empty, and no training query of the dataset has a type"):
        query_typer.run(config, store)


def key(stage: str, *assignments: str) -> str:
    return flow.key(stage, build("demo", assignments=assignments))


def test_the_content_of_a_label_file_is_in_the_key_and_its_path_is_not() -> None:
    here = ["typer.labels=a/x.label", "typer.fingerprint=abc"]

    assert key("query_typer", *here) == key("query_typer", "typer.labels=b/y.label", "typer.fingerprint=abc")
    assert key("query_typer", *here) != key("query_typer", "typer.labels=a/x.label", "typer.fingerprint=other")
    assert key("query_typer", *here) == key("query_typer", *here, "dataset.fingerprint=other")
    assert key("query_typer") != key("query_typer", "dataset.fingerprint=other")


def test_the_classifiers_key_depends_only_on_settings_of_its_training() -> None:
    for other in ("text.passage_pieces=99", "training.dev_queries=7", "resources.train_cpus=1", "strm.form=off"):
        assert key("query_typer", "typer.labels=x") == key("query_typer", "typer.labels=x", other), other
    for other in ("training.seed=7", "encoder.dropout=0.2", "text.query_pieces=9", "typer.epochs=9"):
        assert key("query_typer", "typer.labels=x") != key("query_typer", "typer.labels=x", other), other


def test_only_predicted_types_depend_on_the_trained_classifier() -> None:
    trained = "query_types.predict=trained"

    assert key("query_types") == key("query_types", "typer.epochs=9")
    assert key("query_types", trained) != key("query_types", trained, "typer.epochs=9")
    assert flow.plan("query_types", build("demo", assignments=[trained])) == ("corpus", "query_typer", "query_types")
    assert flow.plan("query_types", build("demo")) == ("corpus", "query_types")
