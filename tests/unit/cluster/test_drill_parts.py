"""What benchmarks/node_drill and benchmarks/soak are made of: they see a difference, and their stages are distinct."""

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import safetensors.torch
import torch

from benchmarks.local_nodes import Commits
from benchmarks.same_results import compared
from benchmarks.soak import configured, stage
from rayrank.core import flow
from rayrank.core.artifacts import Artifact


def written(root: Path, score: float, weight: float, dev: float) -> list[Path]:
    """Write a run and a model; return their places."""
    run, model = Artifact(str(root), "search", "1"), Artifact(str(root), "pointwise", "2")
    rows = pa.table({"query_id": ["q"], "score": np.array([score], np.float32)})
    run.write_table("test/part-0.parquet", rows.replace_schema_metadata({"seconds": str(time.monotonic())}))
    run.write_json("manifest.json", {"created": time.time()})
    folder = root / "pointwise" / "2" / "model"
    folder.mkdir(parents=True)
    safetensors.torch.save_file({"head": torch.tensor([weight])}, folder / "model.safetensors")
    model.write_json("manifest.json", {"dev": dev})
    return [Path("search/1"), Path("pointwise/2")]


def test_results_are_the_same_whatever_their_durations(tmp_path: Path) -> None:
    made = written(tmp_path / "a", 1.0, 1.0, 0.5), written(tmp_path / "b", 1.0, 1.0, 0.5)
    same = compared(tmp_path / "a", tmp_path / "b", *made)
    assert same.is_whole()
    assert (same.about_data(), same.about_models()) == ("1 equal", "1 equal, equal bits")


@pytest.mark.parametrize(
    ("score", "weight", "dev", "about"),
    [
        (1 + 1e-6, 1.0, 0.5, ("1 DIFFER", "1 equal, equal bits")),
        (1.0, 1.1, 0.5, ("1 equal", "1 equal, other weights")),
        (1.0, 1.0, 0.4, ("1 equal", "1 OTHER METRIC")),
    ],
)
def test_a_difference_is_found(score: float, weight: float, dev: float, about: tuple[str, str], tmp_path: Path) -> None:
    made = written(tmp_path / "a", 1.0, 1.0, 0.5), written(tmp_path / "b", score, weight, dev)
    same = compared(tmp_path / "a", tmp_path / "b", *made)
    assert (same.about_data(), same.about_models()) == about


def test_an_artifact_that_only_one_storage_has_is_a_difference(tmp_path: Path) -> None:
    made = written(tmp_path / "a", 1.0, 1.0, 0.5)
    assert not compared(tmp_path / "a", tmp_path / "b", made, []).is_whole()


def test_an_artifact_that_is_finished_twice_is_counted(tmp_path: Path) -> None:
    commits = Commits(tmp_path)
    artifact = Artifact(str(tmp_path), "corpus", "1")
    for _ in range(2):
        artifact.write_json("manifest.json", {})
        commits.look()
        assert commits.look() == {tmp_path / "corpus" / "1"}
    assert commits.again == [tmp_path / "corpus" / "1"]


def test_no_two_stages_of_the_soak_make_the_same_artifact() -> None:
    found = [stage(number) for number in range(200)]
    keys = {(name, flow.key(name, configured(settings))) for name, settings in found}
    assert len(keys) == len(found)
    assert {name for name, _ in found} == {"corpus", "index", "bm25", "embeddings", "evaluate", "pretrain"}
