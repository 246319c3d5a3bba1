"""DeepCT on the demo corpus, from the judgments to an index; documents that exist are not made again."""

from pathlib import Path

import pyarrow as pa
import pytest

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.overrides import apply
from rayrank.stages import corpus, deepct_documents, deepct_index, train_deepct

from .conftest import configured

CHANGES = {"deepct.length": 64, "deepct.lr": 1e-3, "deepct.max_steps": 40, "deepct.epochs": 20}


def passage_ids(artifact: Artifact) -> list[str]:
    tables = [artifact.read_table(name, ["passage_id"]) for name in artifact.manifest["shards"]]
    ids: list[str] = pa.concat_tables(tables)["passage_id"].to_pylist()
    return ids


def written(artifact: Artifact, manifest: dict[str, list[str]]) -> dict[str, int]:
    return {name: Path(artifact.path(name)).stat().st_mtime_ns for name in manifest["shards"]}


@pytest.mark.slow
def test_it_learns_and_a_restart_makes_only_missing_documents(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: PipelineConfig = apply(configured().model_dump(), CHANGES)
    store = Store(str(tmp_path))
    monkeypatch.setattr(deepct_documents, "PASSAGES", 40)
    passages = corpus.run(config, store)

    trained = train_deepct.run(config, store).manifest
    assert trained["num_steps"] == 40
    assert trained["num_train_passages"] > trained["num_dev_passages"] > 0
    assert trained["dev"] > trained["dev_of_mean"]

    documents = deepct_documents.run(config, store)
    manifest = documents.manifest
    assert manifest["num_passages"] == passages.manifest["num_passages"]
    assert manifest["mean_term_frequency"] > 1
    before, lost = written(documents, manifest), manifest["shards"][1]
    assert passage_ids(documents) == passage_ids(passages)
    text = documents.read_table(lost)

    Path(documents.path("manifest.json")).unlink()
    Path(documents.path(lost)).unlink()
    again = written(documents, deepct_documents.run(config, store).manifest)

    assert {name for name in again if again[name] != before[name]} == {lost}
    assert documents.read_table(lost).equals(text)
    assert documents.manifest["num_empty"] == manifest["num_empty"]
    assert deepct_index.run(config, store).manifest["num_passages"] == manifest["num_passages"]
