"""SDNet on the demo corpus: trained through Ray Train, scored as a run, and interpolated with the first stage."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.overrides import apply
from rayrank.stages.make import make

from .conftest import configured

CHANGES = {
    "sdnet.length": 48, "sdnet.hidden": 8, "sdnet.max_steps": 6, "sdnet.batch_size": 8,
    "runs.sdnet": {"kind": "rerank", "model": "sdnet"},
    "runs.sdnet_fused": {"kind": "interpolate", "of": ["sdnet", "candidates"]},
}  # fmt: skip


def rows(run: Artifact, split: str) -> pa.Table:
    return pa.concat_tables([run.read_table(name) for name in run.names(split)])


@pytest.mark.slow
def test_sdnet_is_trained_on_the_candidates_scores_them_and_is_fused_with_them(trained: Path, tmp_path: Path) -> None:
    storage = shutil.copytree(trained, tmp_path / "storage")
    config, store = apply(configured().model_dump(), CHANGES), Store(str(storage))
    made = {node: make(node, config, store) for node in flow.plan("sdnet_fused", config)}

    facts = made["sdnet"].manifest
    assert facts["num_steps"] == 6
    assert 0 < facts["dev"] <= 1
    assert "query_types" not in made
    for split in ("dev", "test"):
        found, candidates = rows(made["run:sdnet"], split), rows(made["run:bm25"], split)
        assert found.select([0, 1, 2]).equals(candidates.select([0, 1, 2]))
        assert np.unique(found["score"].to_numpy()).size > len(found) / 2
        assert len(rows(made["run:sdnet_fused"], split)) == len(found)
