"""The lists of the listwise phase lose unjudged candidates only."""

import time
from pathlib import Path

import pyarrow as pa

from rayrank.core.artifacts import Store
from rayrank.core.config import NoiseConfig, PipelineConfig
from rayrank.core.records import CANDIDATES, JUDGMENTS
from rayrank.training.phases.listwise import filtered_candidates


def test_a_candidate_that_was_judged_irrelevant_stays_in_its_list(tmp_path: Path) -> None:
    config, store = PipelineConfig(noise=NoiseConfig(threshold=0.9)), Store(str(tmp_path))
    judgments = pa.table([["q", "q"], ["relevant", "irrelevant"], [1, 0], ["train"] * 2], schema=JUDGMENTS)
    passages = ["relevant", "irrelevant", "unjudged", "low"]
    scored = pa.table([["q"] * 4, passages, [1, 2, 3, 4], [9.0, 9.0, 9.0, -9.0]], schema=CANDIDATES)
    for stage, name, table in (("corpus", "judgments", judgments), ("noise", "train/part-00000", scored)):
        artifact = store.artifact(stage, config)
        artifact.write_table(f"{name}.parquet", table)
        store.finish(artifact, config, time.monotonic(), {}, stage)

    (left,) = filtered_candidates(config, store)

    assert left["passage_id"].to_pylist() == ["relevant", "irrelevant", "low"]
